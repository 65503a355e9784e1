package xds_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/resource"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testPlan is a plan made by hand. What is not set apart for a source is the
// same for all.
type testPlan struct {
	version     string
	specs       map[string]*isobar.Service
	assignments map[string]*isobar.Assignment // by service, or service@locality
	awaited     []isobar.Service              // sorted
}

func (p *testPlan) VersionString() string { return p.version }

func (p *testPlan) RequestLimit(string) uint32 { return 0 }

func (p *testPlan) Awaited() []isobar.Service { return p.awaited }

func (p *testPlan) ServiceNames() []string { return slices.Sorted(maps.Keys(p.specs)) }

func (p *testPlan) Spec(name string) *isobar.Service { return p.specs[name] }

func (p *testPlan) Assignment(service string, source isobar.Locality) *isobar.Assignment {
	if a, ok := p.assignments[service+"@"+source.String()]; ok {
		return a
	}
	return p.assignments[service]
}

func (p *testPlan) Basis(string) any { return nil }

// edit changes a plan before it is published.
type edit func(*testPlan)

// serve adds a service, or gives it other content: an endpoint on that port.
func serve(name string, port int) edit {
	return func(p *testPlan) {
		if p.specs[name] == nil {
			p.specs[name] = &isobar.Service{Name: name}
		}
		p.assignments[name] = assignmentOf(name, port)
		p.awaited = slices.DeleteFunc(p.awaited, func(s isobar.Service) bool { return s.Name == name })
	}
}

// await says of a service that its endpoints are not known yet.
func await(name string) edit {
	return func(p *testPlan) { p.awaited = append(p.awaited, isobar.Service{Name: name}) }
}

// serveAt gives the clients of one locality other content.
func serveAt(name, locality string, port int) edit {
	return func(p *testPlan) { p.assignments[name+"@"+locality] = assignmentOf(name, port) }
}

func withORCA(name string) edit {
	return func(p *testPlan) { p.specs[name] = &isobar.Service{Name: name, ORCA: isobar.ORCA{On: true}} }
}

func without(name string) edit {
	return func(p *testPlan) {
		delete(p.specs, name)
		delete(p.assignments, name)
	}
}

func assignmentOf(name string, ports ...int) *isobar.Assignment {
	g := &isobar.EndpointGroup{Locality: isobar.MustLocality("us-east/b")}
	for _, port := range ports {
		g.Endpoints = append(g.Endpoints, isobar.WeightedEndpoint{
			Address: fmt.Sprintf("10.0.0.%d:%d", 1+port/60000, port%60000), Weight: 1,
		})
	}
	return &isobar.Assignment{
		Service: name, OverprovisioningFactor: 140,
		Priorities: [][]isobar.LocalityWeight{{{EndpointGroup: g, Weight: 100}}},
	}
}

// world is a server with its clients, inside a bubble of virtual time.
type world struct {
	t       *testing.T
	server  *xds.Server
	builder *view.Builder
	set     *view.Set
	plan    *testPlan
	version int
	refused []view.Refusal
	conn    *grpc.ClientConn
}

// inWorld runs a test in a bubble: whenever everything waits, all that will
// happen has happened, so "nothing was sent" can be seen without a clock.
func inWorld(t *testing.T, f func(w *world), options ...func(*xds.Options)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, options...)
		defer w.close()
		f(w)
	})
}

func newWorld(t *testing.T, options ...func(*xds.Options)) *world {
	t.Helper()
	o := xds.Options{Identifier: "test-plane"}
	for _, set := range options {
		set(&o)
	}
	w := &world{
		t: t, server: xds.New(o),
		plan: &testPlan{specs: map[string]*isobar.Service{}, assignments: map[string]*isobar.Assignment{}},
	}
	w.builder = view.NewBuilder(view.Options{Refused: func(r view.Refusal) { w.refused = append(w.refused, r) }})
	g := grpc.NewServer(grpc.ForceServerCodecV2(rpc.ServerCodec()))
	xds.Register(g, w.server, false)
	xds.RegisterEDS(g, w.server, false)
	conn, stop := testhelp.Serve(t, g)
	w.conn = conn
	t.Cleanup(func() {
		stop()
		w.server.Stop()
	})
	return w
}

func (w *world) close() {
	if err := w.conn.Close(); err != nil && status.Code(err) != codes.Canceled {
		w.t.Error(err)
	}
}

// publish makes the next version of the plan.
func (w *world) publish(edits ...edit) {
	w.version++
	next := &testPlan{
		version:     fmt.Sprint("v", w.version),
		specs:       maps.Clone(w.plan.specs),
		assignments: maps.Clone(w.plan.assignments),
	}
	for _, e := range edits {
		e(next)
	}
	w.plan = next
	w.set = w.builder.Build(next, w.set)
	w.server.Publish(w.set)
}

// clientType finds what the server knows of its only client.
func (w *world) clientType(kind resource.Kind) xds.ClientType {
	w.t.Helper()
	synctest.Wait()
	clients := w.server.Clients()
	if len(clients) != 1 {
		w.t.Fatalf("%d clients, want 1", len(clients))
	}
	for _, ct := range clients[0].Types {
		if ct.Type == kind.String() {
			return ct
		}
	}
	w.t.Fatalf("the client did not ask for %s", kind)
	return xds.ClientType{}
}

func smallResponses(o *xds.Options) { o.ResponseSize = 1 }
