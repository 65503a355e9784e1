package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a small registry and control loop: every write is planned at once,
// unless the loop is held.
type world struct {
	mu       sync.Mutex
	objects  map[string]isobar.Object
	revision uint64
	health   map[string]isobar.HealthStatus
	said     []isobar.HealthOverride
	ordered  isobar.HealthChange // the last one
	current  *plan.Plan
	held     bool
	beat     time.Time
	failWith error
}

func newWorld() *world {
	w := &world{objects: map[string]isobar.Object{}, health: map[string]isobar.HealthStatus{}, beat: time.Now()}
	w.objects["legacy"] = isobar.Object{Owner: isobar.OwnerFile, Revision: 1, Service: service("legacy")}
	w.change()
	return w
}

func service(name string) isobar.Service {
	return isobar.Service{Name: name, Localities: []isobar.ServiceLocality{{
		Locality:  isobar.MustLocality("us-east/b"),
		MaxRate:   100,
		Endpoints: []isobar.Endpoint{{Address: "127.0.0.1:50051"}},
	}}}
}

// change makes the next revision and plans it.
func (w *world) change() uint64 {
	w.revision++
	if w.held {
		return w.revision
	}
	topology := &isobar.Topology{Revision: w.revision}
	for _, o := range w.objects {
		topology.Services = append(topology.Services, o.Service)
	}
	topology.Normalize()
	p := &plan.Plan{Version: 100 + w.revision, Made: time.Unix(1000, 0).UTC(), Topology: topology}
	for i := range topology.Services {
		p.Services = append(p.Services, planned(&topology.Services[i]))
	}
	w.current = p
	return w.revision
}

func planned(spec *isobar.Service) *plan.Service {
	group := &isobar.EndpointGroup{
		Locality:  spec.Localities[0].Locality,
		Endpoints: []isobar.WeightedEndpoint{{Address: "127.0.0.1:50051", Weight: 1, Health: isobar.Healthy}},
	}
	sites := []assign.Site{{Group: group, Nominal: 100, Capacity: 100, Ceiling: 0.8, Scale: 1, Unmanaged: 10}}
	source := isobar.MustLocality("eu-west/a")
	return &plan.Service{Spec: spec, Sites: sites, Coverage: 1, Result: &assign.Result{
		Service: spec.Name, Sites: sites, Load: []float64{40},
		Sources: []assign.SourceResult{{
			Source: source, Demand: 40, Target: []float64{1}, Shares: []float64{1},
			Assignment: &isobar.Assignment{
				Service: spec.Name, Source: source,
				Priorities: [][]isobar.LocalityWeight{{{EndpointGroup: group, Weight: isobar.WeightScale}}},
			},
		}},
	}}
}

func (w *world) List() []isobar.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []isobar.Object
	for _, o := range w.objects {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b isobar.Object) int { return strings.Compare(a.Service.Name, b.Service.Name) })
	return out
}

func (w *world) Get(name string) (isobar.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.get(name)
}

func (w *world) get(name string) (isobar.Object, error) {
	o, ok := w.objects[name]
	if !ok {
		return isobar.Object{}, fmt.Errorf("service %q: %w", name, isobar.ErrNotFound)
	}
	return o, nil
}

// writable checks owner and revision of what a write meets.
func (w *world) writable(name string, match uint64) error {
	o, err := w.get(name)
	switch {
	case errors.Is(err, isobar.ErrNotFound) && match == 0:
		return nil // a new one
	case err != nil:
		return err
	case o.Owner != isobar.OwnerAPI:
		return fmt.Errorf("service %q: %w: the %s", name, isobar.ErrOwned, o.Owner)
	case match != 0 && match != o.Revision:
		return fmt.Errorf("service %q: %w: it stands at %d", name, isobar.ErrStale, o.Revision)
	}
	return nil
}

func (w *world) Put(name string, svc isobar.Service, match uint64) (isobar.Object, uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failWith != nil {
		return isobar.Object{}, 0, w.failWith
	}
	if err := w.writable(name, match); err != nil {
		return isobar.Object{}, 0, err
	}
	o := isobar.Object{Service: svc, Owner: isobar.OwnerAPI, Revision: w.revision + 1}
	w.objects[name] = o
	return o, w.change(), nil
}

func (w *world) PutAll(services []isobar.Service) (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range services {
		if err := w.writable(s.Name, 0); err != nil {
			return 0, err
		}
	}
	for name, o := range w.objects {
		if o.Owner == isobar.OwnerAPI {
			delete(w.objects, name)
		}
	}
	for _, s := range services {
		w.objects[s.Name] = isobar.Object{Service: s, Owner: isobar.OwnerAPI, Revision: w.revision + 1}
	}
	return w.change(), nil
}

func (w *world) Delete(name string, match uint64) (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.get(name); err != nil {
		return 0, err
	}
	if err := w.writable(name, match); err != nil {
		return 0, err
	}
	delete(w.objects, name)
	return w.change(), nil
}

func (w *world) setHealth(name, address string, by *isobar.HealthChange) (uint64, error) {
	h := by.Status
	w.mu.Lock()
	defer w.mu.Unlock()
	o, err := w.get(name)
	if err != nil {
		return 0, err
	}
	for _, l := range o.Service.Localities {
		if slices.ContainsFunc(l.Endpoints, func(e isobar.Endpoint) bool { return e.Address == address }) {
			w.health[name+" "+address], w.ordered = h, *by
			w.said = slices.DeleteFunc(w.said, func(o isobar.HealthOverride) bool { return o.Service == name && o.Address == address })
			if h != isobar.Unknown {
				w.said = append(w.said, isobar.HealthOverride{Service: name, Address: address, Locality: l.Locality, Status: h, Since: connected, Who: by.Who, Reason: by.Reason})
			}
			return w.change(), nil
		}
	}
	return 0, fmt.Errorf("endpoint %q of service %q: %w", address, name, isobar.ErrNotFound)
}

func (w *world) SetHealths(o *isobar.HealthChange) (revision uint64, err error) {
	for _, a := range o.Addresses {
		if revision, err = w.setHealth(o.Service, a, o); err != nil {
			return 0, err
		}
	}
	return revision, nil
}

func (w *world) ForceHealths(context.Context, *isobar.HealthChange) error {
	return isobar.ErrUnavailable
}

func (w *world) Overrides() []isobar.HealthOverride {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.said)
}

func (w *world) Current() *plan.Plan {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

func (w *world) WaitRevision(ctx context.Context, revision uint64) (*plan.Plan, error) {
	if p := w.Current(); p != nil && p.Topology.Revision >= revision {
		return p, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (w *world) Beat() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.beat
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func optionsOf(w *world) admin.Options {
	return admin.Options{
		Objects: w, Parser: jsonParser{}, Planner: &planner{world: w, explain: explain}, Fleet: &fleet{clients: clients},
		Rules: admin.Rules{Writable: true}, Limits: admin.Limits{PublishWait: 50 * time.Millisecond}, Metrics: admin.Metrics{Gatherer: prometheus.NewRegistry()},
	}
}

// start runs the interface over a world.
func start(t *testing.T, w *world, change func(*admin.Options)) *httptest.Server {
	t.Helper()
	opts := optionsOf(w)
	if change != nil {
		change(&opts)
	}
	s, err := admin.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return srv
}

// answer is what came back.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (a answer) decode(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
}

// do sends a request; headers come in pairs.
func do(t *testing.T, srv *httptest.Server, method, path, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{code: resp.StatusCode, header: resp.Header, body: string(b)}
}

// jsonParser reads JSON only; it stands in for the reader of the configuration.
type jsonParser struct{}

func (jsonParser) ParseService(name string, body []byte) (isobar.Service, []admin.Problem, error) {
	var s isobar.Service
	if err := json.Unmarshal(body, &s); err != nil {
		return s, nil, &admin.InputError{Problems: []admin.Problem{
			{Error: "not a service", Place: "1:1", Fix: "write an object"},
			{Error: err.Error(), Place: "1:2", Fix: "mend it"},
		}}
	}
	if s.Name == "" {
		s.Name = name
	}
	if s.Name != name {
		return s, nil, &admin.InputError{Problems: []admin.Problem{{Error: "the name differs from the path", Place: "name", Fix: "write " + name}}}
	}
	var warnings []admin.Problem
	if s.MaxShift > 0 {
		warnings = append(warnings, admin.Problem{Error: "max_shift has no effect", Place: "1:1", Fix: "remove it"})
	}
	return s, warnings, nil
}

func (jsonParser) ParseServices(body []byte) ([]isobar.Service, []admin.Problem, error) {
	var list []isobar.Service
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, nil, &admin.InputError{Problems: []admin.Problem{{Error: err.Error(), Place: "1:1", Fix: "write a list"}}}
	}
	return list, nil, nil
}

// explain stands in for the plan's own explanation.
func explain(p *plan.Plan, name string, source isobar.Locality) (plan.Explanation, error) {
	if source.Region == "mars" {
		return plan.Explanation{}, fmt.Errorf("source %s: %w", source, isobar.ErrNotFound)
	}
	return plan.Explanation{Service: name, Source: source, Version: p.VersionString(), Summary: "everything goes to the nearest locality"}, nil
}

var connected = time.Unix(900, 0).UTC()

func clients() []admin.Client {
	return []admin.Client{{
		ID: "node-1", Cluster: "shop", Locality: "eu-west/a", Agent: "gRPC Go 1.85.0", Peer: "127.0.0.1:4711", ConnectedSince: connected,
		Types: map[string]admin.ClientType{"eds": {
			Subscribed: 1, SentVersion: "101", AckedVersion: "100", AgeSeconds: 3,
			NACK: &admin.NACK{Version: "101", Text: "priority gap", At: connected},
		}},
	}}
}

// The registry fits the interface as it is.
var _ admin.Objects = (*discovery.Registry)(nil)
