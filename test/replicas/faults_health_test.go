package replicas

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// eviction is within what time an endpoint that refuses connections loses its traffic after the
// leader is gone: beside the takeover an interval of its check with the jitter and the timeout, a
// report interval and a tick, of a second each.
const eviction = takeover + 4*time.Second

// probed is a service with checks of its endpoints, which the test can end.
const probed = "probed"

// loseEndpoint kills the leader and has an endpoint refuse connections at the same moment. The
// checkers are connected to the followers: their reports have to reach the next leader.
func loseEndpoint(w *world) time.Duration {
	var endpoints []*net.TCPListener
	var list []string
	for range 4 {
		l := w.endpoint()
		defer func() { _ = l.Close() }() // one is closed before
		endpoints, list = append(endpoints, l), append(list, fmt.Sprintf(`{"address": %q}`, l.Addr()))
	}
	body := fmt.Sprintf(`{"name": %q, "localities": [{"locality": "us/a", "endpoints": [%s]}],
		"health_checks": [{"tcp": {}, "interval": "1s", "timeout": "500ms", "unhealthy_threshold": 2, "healthy_threshold": 1}]}`, probed, strings.Join(list, ", "))
	if err := w.write(w.Replicas[0], probed, body); err != nil {
		w.t.Fatal(err)
	}
	defer w.remove(probed)
	leader, _ := w.Leader()
	w.Direct(w.others(leader)...)
	defer w.startCheckers(3)()
	w.Await("healthy endpoints", func() bool { return w.healthy(probed) == len(endpoints) })
	w.Direct(w.Replicas...)

	began := time.Now()
	w.Kill(leader)
	if err := endpoints[0].Close(); err != nil {
		w.t.Error(err)
	}
	w.Await("an endpoint less", func() bool { return w.healthy(probed) == len(endpoints)-1 })
	took := time.Since(began)
	w.Start(leader)
	return took
}

// endpoint accepts connections until it is closed.
func (w *world) endpoint() *net.TCPListener {
	w.t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_ = c.Close() // nothing was written
			}
		}
	}()
	return l
}

// startCheckers runs n checkers, each in a zone of its own. The caller ends them.
func (w *world) startCheckers(n int) (end func()) {
	w.t.Helper()
	var started []*exec.Cmd
	for i := range n {
		name := string(rune('a' + i))
		c := exec.CommandContext(w.t.Context(), w.program, "checker", "--server", w.Front(), "--node-id", "checker-"+name, "--locality", "us/"+name)
		if err := c.Start(); err != nil {
			w.t.Fatal(err)
		}
		started = append(started, c)
	}
	return func() {
		for _, c := range started {
			if err := c.Process.Kill(); err != nil {
				w.t.Error(err)
			}
			_ = c.Wait() // "signal: killed"
		}
	}
}

// healthy counts the endpoints of a service to which a new client would send requests; 0 also
// where no replica answers.
func (w *world) healthy(service string) (n int) {
	conn, err := grpc.NewClient("passthrough:///"+w.Front(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // nothing waits to be sent
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return 0
	}
	request := &discoveryv3.DiscoveryRequest{
		Node:    &corev3.Node{Id: "look", Locality: &corev3.Locality{Region: "us", Zone: "a"}},
		TypeUrl: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", ResourceNames: []string{service},
	}
	if err := stream.Send(request); err != nil {
		return 0
	}
	r, err := stream.Recv()
	if err != nil {
		return 0
	}
	for _, resource := range r.GetResources() {
		var a endpointv3.ClusterLoadAssignment
		if err := resource.UnmarshalTo(&a); err != nil {
			w.t.Fatal(err)
		}
		for _, l := range a.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				if s := e.GetHealthStatus(); s == corev3.HealthStatus_HEALTHY || s == corev3.HealthStatus_UNKNOWN {
					n++
				}
			}
		}
	}
	return n
}

// remove deletes a service of the admin API.
func (w *world) remove(service string) {
	w.t.Helper()
	w.rest()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodDelete, "http://"+w.Replicas[0].API+"/v1/services/"+service, nil)
	if err == nil {
		err = answered(req)
	}
	if err != nil {
		w.t.Error(err)
	}
}
