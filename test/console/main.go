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
	r, err := fleet.Start(ctx, fleet.DefaultScenario(), isobar.ModeFull, start)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	conn, err := grpc.NewClient(xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	hostile, err := fleet.NewAgent(fleet.AgentOptions{
		Conn: conn, ID: markup, Cluster: markup, Locality: isobar.Locality{Region: markup, Zone: "a"}, Services: []string{"checkout"},
		Kind: fleet.KindEnvoy, Demand: func(string, time.Time) float64 { return 5 },
		Accept: func(*endpointv3.ClusterLoadAssignment) error { return errors.New(markup) },
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		hostile.Run(ctx)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	if _, err := fmt.Fprintf(stdout, "http://%s/ui/\n", r.Admin()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}
