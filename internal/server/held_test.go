package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// heldWorld is a server whose configuration file changes, while a client sends
// to the services that load names.
type heldWorld struct {
	*server.Server

	t    *testing.T
	path string
	kept *store.Memory
	log  *testhelp.Log
	stop func()
}

// write replaces the file; each service is in one locality, us/a. "x without endpoints"
// is service x with none there.
func (w *heldWorld) write(services ...string) {
	w.t.Helper()
	text := ""
	if len(services) == 0 {
		text = " []"
	}
	for _, name := range services {
		name, empty := strings.CutSuffix(name, " without endpoints")
		endpoints := `"10.0.0.1:80"`
		if empty {
			endpoints = ""
		}
		text += fmt.Sprintf("\n- {name: %s, localities: [{locality: us/a, endpoints: [%s]}]}", name, endpoints)
	}
	w.writeServices(text)
}

// writeServices replaces the file with one that has this behind "services:".
func (w *heldWorld) writeServices(text string) {
	w.t.Helper()
	text = "xds: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\", writable: true}\nstop_spread: 0s\ntick: 1s\nreport_interval: 1s\nservices:" + text
	if err := os.WriteFile(w.path+".new", []byte(text+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(w.path+".new", w.path); err != nil {
		w.t.Fatal(err)
	}
}

func (w *heldWorld) serve() {
	w.t.Helper()
	w.Server, w.log, w.stop = serveFileFrom(w.t, w.path, w.kept)
	w.t.Cleanup(w.stop)
}

func newHeldWorld(t *testing.T, services ...string) *heldWorld {
	t.Helper()
	w := &heldWorld{t: t, path: filepath.Join(t.TempDir(), "isobar.yaml"), kept: store.NewMemory()}
	t.Cleanup(func() { _ = w.kept.Close() })
	w.write(services...)
	w.serve()
	return w
}

// report has a client send 40 requests/s to a service, until it is stopped.
func (w *heldWorld) report(service string) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	conn, err := grpc.NewClient(w.XDSAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := loadstatsv3.NewLoadReportingServiceClient(conn).StreamLoadStats(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			err := s.Send(&loadstatsv3.LoadStatsRequest{Node: nodeIn("reporter", "us/a"), ClusterStats: []*endpointv3.ClusterStats{{
				ClusterName: service, LoadReportInterval: durationpb.New(time.Second),
				UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
					Locality: nodeIn("", "us/a").GetLocality(), TotalIssuedRequests: 40, TotalSuccessfulRequests: 40,
				}},
			}}})
			if err != nil {
				return
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		cancel()
		<-done
		_ = conn.Close()
	}
}

// silent has a client subscribe to a service, and waits until it counts as one that reports
// no load.
func (w *heldWorld) silent(service string) (leave func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	conn, err := grpc.NewClient(w.XDSAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := s.Send(&discoveryv3.DiscoveryRequest{Node: nodeIn("silent", "us/a"), TypeUrl: resource.EndpointsURL, ResourceNames: []string{service}}); err != nil {
		w.t.Fatal(err)
	}
	testhelp.Eventually(w.t, "a silent client", func() bool {
		return slices.ContainsFunc(w.status().Attention, func(a admin.Attention) bool { return a.Code == admin.ClientsSilent })
	})
	return cancel
}

func (w *heldWorld) status() (out admin.Status) {
	w.t.Helper()
	remote, err := admin.NewRemote("http://" + w.AdminAddress())
	if err != nil {
		w.t.Fatal(err)
	}
	if out, err = remote.Status(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// in waits until exactly these services are in the plan.
func (w *heldWorld) in(services ...string) {
	w.t.Helper()
	testhelp.Eventually(w.t, fmt.Sprint("plan of ", services), func() bool {
		var have []string
		if p := w.Plan(); p != nil {
			for _, s := range p.Services {
				have = append(have, s.Spec.Name)
			}
		}
		return fmt.Sprint(have) == fmt.Sprint(services)
	})
}

// loaded waits until the plan has the client's demand.
func (w *heldWorld) loaded(service string) {
	w.t.Helper()
	testhelp.Eventually(w.t, "demand of "+service, func() bool {
		s, ok := w.Plan().Service(service)
		return ok && s.Result != nil && len(s.Result.Sources) > 0 && s.Result.Sources[0].Demand > 10
	})
}

// TestRemovedServicesAreHeldUnderLoad: a service that clients send to stays when
// the file no longer has it, also where it was removed or renamed while the process
// was down; what nobody sends to goes. An operator's confirmation removes it.
func TestRemovedServicesAreHeldUnderLoad(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c", "d", "e", "idle")
	stop := w.report("a")
	w.loaded("a")
	w.write("b", "c", "d", "e", "idle", "new-a") // renamed
	w.in("a", "b", "c", "d", "e", "idle", "new-a")
	w.write("b", "c", "d", "e", "new-a")
	w.in("a", "b", "c", "d", "e", "new-a")
	held := w.status().Held
	if held == nil || len(held.Services) != 1 || held.Services[0].Service != "a" || held.Services[0].Rate < 10 || held.Removes != "" {
		t.Fatalf("held %+v", held)
	}
	if text := strings.Join(admin.AttentionTexts(w.status().Attention), "\n"); !strings.Contains(text, "service a: held: it was removed from the configuration while clients send 40 requests/s") {
		t.Errorf("attention:\n%s", text)
	}
	if a := attends(t, w.status(), admin.RemovalHeld); a.Service != "a" || a.Next != "isobar reload --confirm "+held.Digest {
		t.Errorf("%+v", a)
	}
	if n := testhelp.Metric(t, w.Metrics(), "isobar_discovery_held_services"); n != 1 {
		t.Errorf("the metric says %g services", n)
	}
	if !strings.Contains(w.log.String(), "a service is held") {
		t.Error("the log does not say so")
	}

	stop()
	w.stop()
	w.write("b", "c", "d", "e", "new-a")
	w.serve()
	w.in("a", "b", "c", "d", "e", "new-a")
	stop = w.report("a")
	defer stop()
	w.loaded("a")
	held = w.status().Held
	if held == nil || len(held.Services) != 1 {
		t.Fatalf("held after the restart: %+v", held)
	}
	if _, err := w.Reload("0123456789ab"); !errors.Is(err, isobar.ErrStale) {
		t.Errorf("a wrong digest: %v", err)
	}
	if left, err := w.Reload(held.Digest); err != nil || left != nil {
		t.Fatalf("confirmed: %+v, %v", left, err)
	}
	w.in("b", "c", "d", "e", "new-a")
	if _, err := w.Reload(held.Digest); !errors.Is(err, isobar.ErrStale) {
		t.Errorf("confirmed twice: %v", err)
	}
}

// TestHeldServiceLeavesWithItsLoad: nobody has to confirm what harms nobody.
func TestHeldServiceLeavesWithItsLoad(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c")
	stop := w.report("a")
	w.loaded("a")
	w.write("b", "c")
	w.in("a", "b", "c")
	w.loaded("a")
	stop()
	w.in("b", "c")
	if held := w.status().Held; held != nil {
		t.Errorf("held %+v", held)
	}
}

// TestLargeRemovalsAreHeld: a file that lost more than a third of its services, as
// one that is written in two parts has for a moment, is not taken before an
// operator confirms it; services: [] is what an operator means.
func TestLargeRemovalsAreHeld(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c", "d", "e")
	w.write("a", "b", "c")
	testhelp.Eventually(t, "a held change", func() bool { h := w.status().Held; return h != nil && h.Removes == "2 of 5 services" })
	w.in("a", "b", "c", "d", "e")
	if n := testhelp.Metric(t, w.Metrics(), "isobar_discovery_held_change"); n != 1 {
		t.Errorf("the metric says %g", n)
	}
	if _, err := w.Reload(""); err == nil {
		t.Error("an order to read the file takes what is held")
	}
	if n := testhelp.Metric(t, w.Metrics(), "isobar_discovery_held_changes_total"); n != 1 {
		t.Errorf("%g held changes, want 1", n)
	}
	w.write("a", "b", "c", "d", "e") // taken back
	testhelp.Eventually(t, "nothing held", func() bool { return w.status().Held == nil })
	w.write("a", "b", "c", "d") // one is not many
	w.in("a", "b", "c", "d")
	w.write("a", "b")
	testhelp.Eventually(t, "a held change", func() bool { return w.status().Held != nil })
	if left, err := w.Reload(w.status().Held.Digest); err != nil || left != nil {
		t.Fatalf("confirmed: %+v, %v", left, err)
	}
	w.in("a", "b")
	w.write()
	w.in()
}

// A file that Isobar took because it was asked to, and that was taken back before the watcher of
// the file had read it, does not stay in force.
func TestReloadedFileThatIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c", "d", "e")
	w.write("a", "b", "c", "d")
	if _, err := w.Reload(""); err != nil {
		t.Fatal(err)
	}
	w.in("a", "b", "c", "d")
	w.write("a", "b", "c", "d", "e")
	w.in("a", "b", "c", "d", "e")
}

// TestLargeRemovalsAreHeldAtStart: a file that lost them while the process was
// down takes nothing away, either.
func TestLargeRemovalsAreHeldAtStart(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c", "d")
	w.in("a", "b", "c", "d")
	w.stop()
	w.write("a", "b")
	w.serve()
	w.in("a", "b", "c", "d")
	if left, err := w.Reload(w.status().Held.Digest); err != nil || left != nil {
		t.Fatalf("confirmed: %+v, %v", left, err)
	}
	w.in("a", "b")
}

// TestEmptiedServicesAreHeld: a file that lists no endpoints of a service takes as much
// away as one that does not list the service.
func TestEmptiedServicesAreHeld(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c", "d")
	stop := w.report("a")
	defer stop()
	w.loaded("a")
	w.write("a without endpoints", "b without endpoints", "c", "d")
	testhelp.Eventually(t, "a held change", func() bool {
		h := w.status().Held
		return h != nil && h.Removes == "2 of the 4 localities of all services, or all endpoints there"
	})
	w.write("a without endpoints", "b", "c", "d", "e")
	w.in("a", "b", "c", "d", "e")
	held := w.status().Held
	if held == nil || len(held.Services) != 1 || held.Services[0].Service != "a" {
		t.Fatalf("held %+v", held)
	}
	if n := w.endpoints("a"); n != 1 {
		t.Errorf("a has %d endpoints while clients send to it, want the 1 of before", n)
	}
	if _, err := w.Reload(held.Digest); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, "a without endpoints", func() bool { return w.endpoints("a") == 0 })
}

// endpoints counts those of a service in the plan.
func (w *heldWorld) endpoints(service string) (n int) {
	svc, ok := w.Plan().Service(service)
	if !ok {
		return 0
	}
	for i := range svc.Spec.Localities {
		n += len(svc.Spec.Localities[i].Endpoints)
	}
	return n
}

// TestRemovalsInStepsAreHeld: steps that each remove little count together, and stay held
// until an operator confirms them.
func TestRemovalsInStepsAreHeld(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c", "d", "e")
	w.write("a", "b", "c", "d")
	w.in("a", "b", "c", "d")
	w.write("a", "b", "c")
	testhelp.Eventually(t, "a held change", func() bool {
		h := w.status().Held
		return h != nil && h.Removes == "2 of 5 services, together with earlier removals"
	})
	w.in("a", "b", "c", "d")
	w.write("b", "c", "d", "e") // one comes back, another goes
	testhelp.Eventually(t, "nothing held", func() bool { return w.status().Held == nil })
	w.in("b", "c", "d", "e")
	w.write("b", "c")
	testhelp.Eventually(t, "a held change", func() bool { return w.status().Held != nil })
	if left, err := w.Reload(w.status().Held.Digest); err != nil || left != nil {
		t.Fatalf("confirmed: %+v, %v", left, err)
	}
	w.in("b", "c")
	w.write("b") // what was confirmed counts no longer
	w.in("b")
}

// TestServicesOfSilentClientsAreHeld: what clients send that report no load is not known,
// so that a service to which they subscribe stays until they leave.
func TestServicesOfSilentClientsAreHeld(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c", "d")
	leave := w.silent("a")
	defer leave()
	w.write("b", "c", "d", "e")
	w.in("a", "b", "c", "d", "e")
	if held := w.status().Held; held == nil || len(held.Services) != 1 || held.Services[0].Silent != 1 {
		t.Errorf("held %+v", held)
	}
	if text := strings.Join(admin.AttentionTexts(w.status().Attention), "\n"); !strings.Contains(text, "1 client subscribes to it and reports no load") {
		t.Errorf("attention:\n%s", text)
	}
	leave()
	w.in("b", "c", "d", "e")
}

// TestLargeRemovalsOverTheAPIAreHeld: a set of services that lost more than a third of them
// is not taken before it is confirmed; an empty one is what its writer means.
func TestLargeRemovalsOverTheAPIAreHeld(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "of-file")
	put := func(query string, services ...string) (int, string) {
		t.Helper()
		list := []string{}
		for _, name := range services {
			list = append(list, fmt.Sprintf(`{"name": %q, "localities": [{"locality": "us/a", "endpoints": ["10.0.0.1:80"]}]}`, name))
		}
		body := strings.NewReader(`{"services": [` + strings.Join(list, ", ") + `]}`)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+w.AdminAddress()+"/v1/services"+query, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	taken := func(query string, services ...string) {
		t.Helper()
		if code, text := put(query, services...); code != http.StatusOK {
			t.Errorf("%v with %q: %d %s", services, query, code, text)
		}
	}
	taken("", "a", "b", "c", "d", "e")
	taken("", "a", "b", "c", "d") // one is not many
	code, text := put("", "a", "b")
	_, confirm, told := strings.Cut(text, "?confirm=")
	if code != http.StatusConflict || !told || !strings.Contains(text, "2 of 4 services") {
		t.Fatalf("half of the services: %d %s", code, text)
	}
	w.in("a", "b", "c", "d", "of-file")
	if code, text := put("?confirm="+confirm[:12], "a"); code != http.StatusConflict {
		t.Errorf("another set under that digest: %d %s", code, text)
	}
	taken("?confirm="+confirm[:12], "a", "b")
	w.in("a", "b", "of-file")
	taken("")
	w.in("of-file")
}
