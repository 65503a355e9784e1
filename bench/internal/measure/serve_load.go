package measure

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/bench/internal/fleet"
	"github.com/isobar-xds/isobar/bench/internal/process"
	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

// ServeLoad is a scenario in which the clients of `isobar serve` report load as
// real ones do, once in each interval, spread over it. What is measured is all that
// the process takes meanwhile, decisions included.
type ServeLoad struct {
	Isobar        *string // path of the program
	Clusters      int     // in each report
	Streams       int
	PerConnection int
	Interval      time.Duration // of the reports of a stream; a server decides every 5 s
	Length        time.Duration // of a round
	Servers       []string
}

// Name is the scenario's name in results.
func (l *ServeLoad) Name() string {
	return fmt.Sprintf("ServeReport/clusters=%d/streams=%d/every=%v", l.Clusters, l.Streams, l.Interval)
}

// reporting is a server with its streams.
type reporting struct {
	*reporters
	subject

	kind  string
	alone process.Usage // before a client connects
}

// Run measures all servers, in turn.
func (l *ServeLoad) Run(ctx context.Context, rounds int, report func(Result)) error {
	body, err := proto.Marshal((&Load{Clusters: l.Clusters}).report())
	if err != nil {
		return err
	}
	var all []*reporting
	defer func() {
		for _, r := range all {
			_ = r.stop()
			r.hangUp()
		}
	}()
	for _, kind := range l.Servers {
		r, err := l.start(ctx, kind)
		if r != nil {
			all = append(all, r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	for round := range rounds + 1 {
		for _, r := range all {
			result, err := l.round(ctx, r, body)
			if err != nil {
				return fmt.Errorf("%s: %w", r.kind, err)
			}
			if round > 0 { // the first warms up
				report(result)
			}
		}
	}
	for _, r := range all {
		u, err := process.Quiet(r.pid())
		if err != nil {
			return err
		}
		report(Result{Name: "Idle" + l.Name() + "/server=" + r.kind, N: int64(l.Streams), Values: []Value{
			{float64(u.RSS-r.alone.RSS) / float64(l.Streams), "RSS-B/stream"}, {float64(u.RSS), "RSS-B"},
		}})
	}
	return nil
}

func (l *ServeLoad) start(ctx context.Context, kind string) (*reporting, error) {
	r := &reporting{reporters: newReporters(l.Streams), kind: kind}
	if kind == "lrs-isobar" {
		s, err := startServed(ctx, *l.Isobar, l.Clusters, fleet.Few, fmt.Sprintf("report_interval: %v\n", l.Interval))
		if err != nil {
			return nil, err
		}
		r.subject = s
	} else {
		p, err := process.Start(ctx, kind)
		if err != nil {
			return nil, err
		}
		r.subject = other{p}
	}
	var err error
	if r.alone, err = process.Quiet(r.pid()); err != nil {
		return r, err
	}
	return r, r.dial(ctx, r.address(), l.Streams, l.PerConnection, node)
}

// round has each stream report once in each interval, one connection after the other.
func (l *ServeLoad) round(ctx context.Context, r *reporting, body []byte) (Result, error) {
	before, err := process.Quiet(r.pid())
	if err != nil {
		return Result{}, err
	}
	turn := make([]rawclient.Message, l.PerConnection)
	for s := range turn {
		turn[s] = rawclient.Message{Stream: s, Body: body}
	}
	step := time.NewTicker(l.Interval / time.Duration(len(r.conns)))
	defer step.Stop()
	n := int64(0)
	for begun := time.Now(); time.Since(begun) < l.Length; {
		for _, c := range r.conns {
			select {
			case <-step.C:
			case err := <-r.failed:
				return Result{}, err
			case <-ctx.Done():
				return Result{}, ctx.Err()
			}
			if err := c.Send(turn); err != nil {
				return Result{}, err
			}
			n += int64(len(turn))
		}
	}
	after, err := process.Quiet(r.pid())
	return Result{Name: l.Name() + "/server=" + r.kind, N: n, Values: []Value{
		{float64(after.CPU-before.CPU) / float64(n), "cpu-ns/report"}, {float64(len(body)), "B/report"},
	}}, err
}
