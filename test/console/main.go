// Command console runs the demo's fleet with a real server until its standard
// input ends, for the browser tests of the console: it prints the address of the
// admin interface, and clients that behave badly, with names that hold markup, are
// part of the fleet.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// markup is what a page that writes names as HTML would run.
const markup = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`

func main() {
	if err := run(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "console fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, stdin io.Reader, stdout io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var xds string
	start := func(ctx context.Context, t *isobar.Topology, s *fleet.Scenario) (fleet.Management, error) {
		m, err := fleet.ServeIsobar(ctx, t, s)
		if err == nil {
			xds = m.XDSAddress()
		}
		return m, err
	}
	r, err := fleet.Start(ctx, quarter(), isobar.ModeFull, start)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	conn, err := grpc.NewClient(xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ended, err := misbehave(ctx, conn)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		ended.Wait()
	}()
	if _, err := fmt.Fprintf(stdout, "http://%s/ui/\n", r.Admin()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// quarter is the demo's fleet with a quarter of its requests, so that a machine that
// is busy with a browser keeps up with them.
func quarter() fleet.Scenario {
	s := fleet.DefaultScenario()
	s.ServiceTime *= 4
	s.MaxQueue /= 4
	s.Step.Rate /= 4
	for i := range s.Zones {
		s.Zones[i].Rate /= 4
	}
	return s
}

// misbehave runs clients that refuse what they are sent, that report nothing, and that
// ignore their weights, until ctx ends.
func misbehave(ctx context.Context, conn grpc.ClientConnInterface) (*sync.WaitGroup, error) {
	far := isobar.MustLocality("us-east/a")
	some := func(string, time.Time) float64 { return 10 }
	ended := &sync.WaitGroup{}
	for _, o := range []fleet.AgentOptions{
		{
			ID: markup, Cluster: markup, Locality: isobar.Locality{Region: markup, Zone: "a"}, Services: []string{"checkout", markup},
			Accept: func(*endpointv3.ClusterLoadAssignment) error { return errors.New(markup) },
		},
		{ID: "silent-1", Cluster: "batch", Locality: isobar.MustLocality("us-east/a"), Services: []string{"checkout"}, Silent: true},
		{
			ID: "stubborn-1", Cluster: "legacy", Locality: isobar.MustLocality("eu-west/c"), Services: []string{"checkout"},
			Split: func(*endpointv3.ClusterLoadAssignment) map[isobar.Locality]float64 {
				return map[isobar.Locality]float64{far: 1}
			},
		},
	} {
		o.Conn, o.Kind, o.Demand = conn, fleet.KindEnvoy, some
		agent, err := fleet.NewAgent(o)
		if err != nil {
			return nil, err
		}
		ended.Go(func() { agent.Run(ctx) })
	}
	return ended, nil
}
