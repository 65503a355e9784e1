package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/process"
	testfleet "github.com/isobar-xds/isobar/internal/fleet"
)

// server is a real `isobar serve` in a process of its own, and the followers of its group.
type server struct {
	*process.Isobar // the leader, where there is a group

	followers []*process.Isobar
	election  string              // its directory
	balancer  *testfleet.Balancer // nil where clients connect to the leader alone
	clients   string              // the address that they connect to
	heap      *collections
}

// configuration of the server: defaults, but for what a test has to set.
const configuration = `
report_interval: %v
tick: %v
network:
  latency_ms:
    - {from: region-0, to: region-1, ms: 20}
    - {from: region-0, to: region-2, ms: 60}
    - {from: region-0, to: region-3, ms: 90}
    - {from: region-1, to: region-2, ms: 40}
    - {from: region-1, to: region-3, ms: 70}
    - {from: region-2, to: region-3, ms: 30}
services: []
`

func startServer(ctx context.Context, o *options, stderr io.Writer) (_ *server, err error) {
	s := &server{heap: &collections{rest: stderr}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	blocks, err := s.group(ctx, o.replicas)
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(configuration, interval, interval)
	s.Isobar, err = process.StartIsobar(ctx, process.IsobarOptions{
		Binary: o.isobar, Config: config + blocks[0], Env: []string{traced}, CPU: o.cpu, Stdout: stderr, Stderr: s.heap,
	})
	if err != nil {
		return nil, err
	}
	s.clients = s.XDS
	if o.replicas == 1 {
		return s, nil
	}
	if err := s.awaitLive(ctx, 1); err != nil { // it leads before there is another one
		return nil, err
	}
	for _, block := range blocks[1:] {
		f, err := process.StartIsobar(ctx, process.IsobarOptions{Binary: o.isobar, Config: config + block, Stdout: stderr, Stderr: stderr})
		if err != nil {
			return nil, err
		}
		s.followers = append(s.followers, f)
	}
	if o.at == atAll {
		addresses := []string{s.XDS}
		for _, f := range s.followers {
			addresses = append(addresses, f.XDS)
		}
		if s.balancer, err = testfleet.NewBalancer(addresses); err != nil {
			return nil, err
		}
		s.clients = s.balancer.Address()
	}
	return s, s.awaitLive(ctx, float64(o.replicas))
}

// group returns the section replicas of each replica; empty for a server that is alone.
func (s *server) group(ctx context.Context, size int) ([]string, error) {
	if size == 1 {
		return []string{""}, nil
	}
	var err error
	if s.election, err = os.MkdirTemp("", "isobar-bench-election-"); err != nil {
		return nil, err
	}
	addresses := make([]string, size)
	var peers strings.Builder
	for i := range addresses {
		if addresses[i], err = process.FreeAddress(ctx); err != nil {
			return nil, err
		}
		fmt.Fprintf(&peers, "    - {name: isobar-%d, address: %q}\n", i, addresses[i])
	}
	out := make([]string, size)
	for i, address := range addresses {
		out[i] = fmt.Sprintf("replicas:\n  group: bench\n  name: isobar-%d\n  listen: %q\n  balance: false\n  election: {file: %q}\n  peers:\n%s",
			i, address, s.election, peers.String())
	}
	return out, nil
}

// awaitLive waits until the first replica leads a group of so many live replicas.
func (s *server) awaitLive(ctx context.Context, live float64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		leads, err := s.Counter(ctx, "isobar_replica_leads")
		if err != nil {
			return err
		}
		if n, err := s.Counter(ctx, "isobar_replica_live"); err == nil && leads == 1 && n >= live {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no group of %.0f replicas: %w", live, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// total returns a metric, summed over all replicas.
func (s *server) total(ctx context.Context, name string) (float64, error) {
	sum, err := s.Counter(ctx, name)
	for _, f := range s.followers {
		n, failed := f.Counter(ctx, name)
		sum, err = sum+n, errors.Join(err, failed)
	}
	return sum, err
}

// Stop ends all replicas.
func (s *server) Stop() error {
	var err error
	if s.balancer != nil {
		err = s.balancer.Close()
	}
	for _, f := range s.followers {
		err = errors.Join(err, f.Stop())
	}
	if s.Isobar != nil {
		err = errors.Join(err, s.Isobar.Stop())
	}
	if s.election != "" {
		err = errors.Join(err, os.RemoveAll(s.election))
	}
	return err
}
