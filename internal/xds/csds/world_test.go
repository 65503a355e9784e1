package csds_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"go.uber.org/goleak"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	cdsURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	edsURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// services is a configuration with services of so many endpoints.
func services(endpoints int, names ...string) *config.Config {
	c := config.Default()
	c.StopSpread = 0
	for _, name := range names {
		l := isobar.ServiceLocality{Locality: isobar.MustLocality("us/a")}
		for i := range endpoints {
			l.Endpoints = append(l.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250)})
		}
		c.Services = append(c.Services, isobar.Service{Name: name, Localities: []isobar.ServiceLocality{l}})
	}
	return &c
}

// world is a real server with a connection to it, in a bubble of virtual time.
type world struct {
	t    *testing.T
	conn *grpc.ClientConn
	stop func() // ends the server
	csds statusv3.ClientStatusDiscoveryServiceClient
}

func inWorld(t *testing.T, c *config.Config, test func(w *world)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		listener := bufconn.Listen(1 << 20)
		s, err := server.New(c, server.Listeners{XDS: listener}, server.Options{Store: kept})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		conn := testhelp.Dial(t, listener)
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			_ = conn.Close()
		}()
		synctest.Wait()
		test(&world{t: t, conn: conn, stop: cancel, csds: statusv3.NewClientStatusDiscoveryServiceClient(conn)})
	})
}

// settle waits until everything that will happen now has.
func (w *world) settle() {
	time.Sleep(time.Millisecond) //nolint:forbidigo // virtual time
	synctest.Wait()
}

func node(id string) *corev3.Node {
	return &corev3.Node{
		Id: id, Cluster: "web", Locality: &corev3.Locality{Region: "us", Zone: "a"},
		UserAgentName: "gRPC Go", UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: "1.85.0"},
	}
}

// client is a state-of-the-world stream by hand.
type client struct {
	w      *world
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	last   *discoveryv3.DiscoveryResponse
}

// ads subscribes to names of a type and receives the first response.
func (w *world) ads(id, url string, names ...string) *client {
	w.t.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(w.conn).StreamAggregatedResources(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	c := &client{w: w, stream: stream}
	c.send(&discoveryv3.DiscoveryRequest{Node: node(id), TypeUrl: url, ResourceNames: names})
	if c.last, err = stream.Recv(); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (c *client) send(r *discoveryv3.DiscoveryRequest) {
	c.w.t.Helper()
	if err := c.stream.Send(r); err != nil {
		c.w.t.Fatal(err)
	}
}

// answer accepts the response, or rejects it with a text.
func (c *client) answer(refusal string, names ...string) {
	r := &discoveryv3.DiscoveryRequest{
		TypeUrl: c.last.GetTypeUrl(), ResourceNames: names, ResponseNonce: c.last.GetNonce(), VersionInfo: c.last.GetVersionInfo(),
	}
	if refusal != "" {
		r.VersionInfo, r.ErrorDetail = "", &statuspb.Status{Code: 3, Message: refusal}
	}
	c.send(r)
	c.w.settle()
}

func (w *world) fetch(r *statusv3.ClientStatusRequest) *statusv3.ClientStatusResponse {
	w.t.Helper()
	w.settle()
	out, err := w.csds.FetchClientStatus(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// lines are an answer in short: client, type, name, status.
func lines(r *statusv3.ClientStatusResponse) []string {
	var out []string
	for _, c := range r.GetConfig() {
		for _, x := range c.GetGenericXdsConfigs() {
			kind := x.GetTypeUrl()[strings.LastIndexByte(x.GetTypeUrl(), '.')+1:]
			out = append(out, fmt.Sprintf("%s %s %s %s %s", c.GetNode().GetId(), kind, x.GetName(), x.GetConfigStatus(), x.GetClientStatus()))
		}
	}
	return out
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
