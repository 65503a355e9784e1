package kubernetes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/engine/enginetest"
	"github.com/isobar-xds/isobar/internal/replica/engine/kubernetes"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// apiServer keeps objects as an API server does: an update of an object that is not the
// newest is refused. test/kubernetes has the same rules against a real one.
type apiServer struct {
	mu      sync.Mutex
	version int
	objects map[string]map[string]any // by path
	// before is called once, before the next update of the Lease; nil = nothing.
	before func()
}

func newAPI(t *testing.T) (*apiServer, *rest.Config) {
	t.Helper()
	a := &apiServer{objects: map[string]map[string]any{}}
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	return a, &rest.Config{Host: s.URL}
}

// next has the next update of the Lease wait for what happens.
func (a *apiServer) next(before func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.before = before
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		a.mu.Lock()
		before := a.before
		a.before = nil
		a.mu.Unlock()
		if before != nil {
			before()
		}
	}
	body, _ := io.ReadAll(r.Body)
	code, out := a.handle(r, body)
	if code >= http.StatusBadRequest {
		reason := map[int]metav1.StatusReason{
			http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict,
		}[code]
		out = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "refused"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(out)
}

func (a *apiServer) handle(r *http.Request, body []byte) (int, any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := r.URL.Path
	have, exists := a.objects[at]
	var object map[string]any
	if len(body) > 0 && json.Unmarshal(body, &object) != nil {
		return http.StatusBadRequest, nil
	}
	meta, _ := object["metadata"].(map[string]any)
	switch {
	case r.Method == http.MethodPost:
		at = path.Join(at, fmt.Sprint(meta["name"]))
		if _, exists := a.objects[at]; exists {
			return http.StatusConflict, nil
		}
		return a.put(at, object, meta, http.StatusCreated)
	case r.Method == http.MethodGet && r.URL.Query().Has("labelSelector"):
		items := []any{}
		for name, o := range a.objects {
			if path.Dir(name) == at {
				items = append(items, o)
			}
		}
		return http.StatusOK, map[string]any{"kind": "List", "items": items}
	case !exists:
		return http.StatusNotFound, nil
	case r.Method == http.MethodGet:
		return http.StatusOK, have
	case r.Method == http.MethodDelete:
		delete(a.objects, at)
		return http.StatusOK, have
	case meta["resourceVersion"] != version(have):
		return http.StatusConflict, nil
	}
	return a.put(at, object, meta, http.StatusOK)
}

func version(object map[string]any) any {
	meta, _ := object["metadata"].(map[string]any)
	return meta["resourceVersion"]
}

func (a *apiServer) put(at string, object, meta map[string]any, code int) (int, any) {
	a.version++
	meta["resourceVersion"] = strconv.Itoa(a.version)
	a.objects[at] = object
	return code, object
}

// annotated reports whether the Lease has an annotation.
func (a *apiServer) annotated(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	meta, _ := a.objects["/apis/coordination.k8s.io/v1/namespaces/isobar/leases/prod"]["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	_, is := annotations[key]
	return is
}

func open(t *testing.T, cfg *rest.Config, self group.Identity, duration time.Duration) *kubernetes.Engine {
	t.Helper()
	e, err := kubernetes.Open(kubernetes.Options{Config: cfg, Namespace: "isobar", Lease: "prod", Group: "prod", Self: self, Duration: duration})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func TestRules(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) enginetest.Open {
		t.Helper()
		_, cfg := newAPI(t)
		return func(t *testing.T, self group.Identity) engine.Engine {
			t.Helper()
			return open(t, cfg, self, 0)
		}
	})
}

func claimOf(of group.Identity, epoch uint64) group.Claim {
	return group.Claim{Epoch: epoch, Leader: of, First: epoch*(group.BlockSize+1) + 1}
}

// TestClaimOfAPausedLeader: a leader that is paused between the decision to write and the
// write is refused by what its successor wrote.
func TestClaimOfAPausedLeader(t *testing.T) {
	api, cfg := newAPI(t)
	a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
	first, second := open(t, cfg, a, time.Second), open(t, cfg, b, time.Second)
	enginetest.Do(t, first, group.Request{Op: group.OpAcquire})
	enginetest.Do(t, second, group.Request{Op: group.OpRead})
	api.next(func() {
		<-time.After(1100 * time.Millisecond) // the Lease runs out meanwhile
		enginetest.Do(t, second, group.Request{Op: group.OpAcquire})
		enginetest.Do(t, second, group.Request{Op: group.OpClaim, Claim: claimOf(b, 1)})
	})
	s := enginetest.Do(t, first, group.Request{Op: group.OpClaim, Claim: claimOf(a, 1)})
	if s.Holder != b || s.Claim != claimOf(b, 1) {
		t.Errorf("the paused leader sees %+v", s)
	}
}

// TestWriteOfAPausedLeader: the same holds for what operators write, and what the paused
// leader made is removed.
func TestWriteOfAPausedLeader(t *testing.T) {
	api, cfg := newAPI(t)
	a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
	first, second := open(t, cfg, a, time.Second), open(t, cfg, b, time.Second)
	one, two := claimOf(a, 1), claimOf(b, 2)
	enginetest.Do(t, first, group.Request{Op: group.OpAcquire})
	enginetest.Do(t, first, group.Request{Op: group.OpClaim, Claim: one})
	enginetest.Do(t, second, group.Request{Op: group.OpRead})
	api.next(func() {
		<-time.After(1100 * time.Millisecond)
		enginetest.Do(t, second, group.Request{Op: group.OpAcquire})
		enginetest.Do(t, second, group.Request{Op: group.OpClaim, Previous: one, Claim: two})
		if err := second.WriteOperators(t.Context(), two, 0, 1, []engine.Change{{Key: "x", Data: []byte("b")}}); err != nil {
			t.Error(err)
		}
	})
	err := first.WriteOperators(t.Context(), one, 0, 1, []engine.Change{{Key: "x", Data: []byte("a")}})
	if !errors.Is(err, engine.ErrNotLeading) {
		t.Errorf("the paused leader wrote: %v", err)
	}
	w, err := second.ReadOperators(t.Context())
	if err != nil || string(w.Entries["x"]) != "b" {
		t.Errorf("%s, %v", w.Entries["x"], err)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if n := len(api.objects); n != 2 {
		t.Errorf("%d objects, want the Lease and one write", n)
	}
}

// TestRenewalDuringAWrite: renewals that come between do not make a write fail.
func TestRenewalDuringAWrite(t *testing.T) {
	api, cfg := newAPI(t)
	a := enginetest.Replica("a", 1)
	e, again := open(t, cfg, a, 0), open(t, cfg, a, 0)
	one := claimOf(a, 1)
	enginetest.Do(t, e, group.Request{Op: group.OpAcquire})
	enginetest.Do(t, e, group.Request{Op: group.OpClaim, Claim: one})
	renewals := 0
	api.next(func() {
		renewals++
		enginetest.Do(t, again, group.Request{Op: group.OpRenew})
	})
	if err := e.WriteOperators(t.Context(), one, 0, 1, []engine.Change{{Key: "x", Data: []byte("1")}}); err != nil || renewals == 0 {
		t.Errorf("%v, %d renewals", err, renewals)
	}
}

// TestWriteWithoutALeader: what an operator forces is refused until no renewal has been seen
// for the time of the Lease, and a leader that was paused does not overwrite it.
func TestWriteWithoutALeader(t *testing.T) {
	_, cfg := newAPI(t)
	a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
	first, second := open(t, cfg, a, time.Second), open(t, cfg, b, time.Second)
	one := claimOf(a, 1)
	enginetest.Do(t, first, group.Request{Op: group.OpAcquire})
	enginetest.Do(t, first, group.Request{Op: group.OpClaim, Claim: one})
	forced := []engine.Change{{Key: "health/x", Data: []byte("1")}}
	if err := second.WriteOperators(t.Context(), group.Claim{}, 0, 1, forced); !errors.Is(err, engine.ErrLed) {
		t.Fatalf("got %v while a replica leads", err)
	}
	<-time.After(1100 * time.Millisecond) // the Lease runs out
	if err := second.WriteOperators(t.Context(), group.Claim{}, 0, 1, forced); err != nil {
		t.Fatal(err)
	}
	err := first.WriteOperators(t.Context(), one, 0, 1, []engine.Change{{Key: "health/y", Data: []byte("2")}})
	if !errors.Is(err, engine.ErrStale) {
		t.Errorf("got %v for a write of a leader that does not know the last one", err)
	}
	got, err := first.ReadOperators(t.Context())
	if err != nil || got.Sequence != 1 || string(got.Entries["health/x"]) != "1" || len(got.Entries) != 1 {
		t.Errorf("operators wrote %+v, %v", got, err)
	}
}

// TestLeaseMadeByAnOperator: a Lease without a holder and without times is free.
func TestLeaseMadeByAnOperator(t *testing.T) {
	api, cfg := newAPI(t)
	a := enginetest.Replica("a", 1)
	e := open(t, cfg, a, 0)
	enginetest.Do(t, e, group.Request{Op: group.OpAcquire})
	api.mu.Lock()
	for _, lease := range api.objects {
		lease["spec"] = map[string]any{}
	}
	api.mu.Unlock()
	if s := enginetest.Do(t, e, group.Request{Op: group.OpRead}); s.Holder.Name != "" {
		t.Fatalf("%q leads", s.Holder.Name)
	}
	if s := enginetest.Do(t, e, group.Request{Op: group.OpAcquire}); s.Holder != a {
		t.Fatalf("%q leads", s.Holder.Name)
	}
}

// TestFollowersTellWhatTheyReach: a follower leaves in the Lease how many of the group it
// reaches, and a leader tells by its own clock how old that is. What was there before the
// leader looked counts as old, and what nobody confirms goes.
func TestFollowersTellWhatTheyReach(t *testing.T) {
	api, cfg := newAPI(t)
	a, b := enginetest.Replica("a", 1), enginetest.Replica("b", 1)
	first, second := open(t, cfg, a, 10*time.Second), open(t, cfg, b, 10*time.Second)
	enginetest.Do(t, first, group.Request{Op: group.OpAcquire, Reaches: 1})
	for _, reaches := range []int{2, 2, 3} {
		if s := enginetest.Do(t, second, group.Request{Op: group.OpAcquire, Reaches: reaches}); s.Holder != a || len(s.Present) != 0 {
			t.Fatalf("b reads %+v", s)
		}
		s := enginetest.Do(t, first, group.Request{Op: group.OpRenew})
		if len(s.Present) != 1 || s.Present[0].Name != "b" || s.Present[0].Reaches != reaches || s.Present[0].Age > 9*time.Second {
			t.Fatalf("the leader reads %v", s.Present)
		}
	}
	again := open(t, cfg, a, 10*time.Second) // the same leader, as a process that has not seen b yet
	if s := enginetest.Do(t, again, group.Request{Op: group.OpRenew}); len(s.Present) != 0 {
		t.Errorf("a leader that has just begun reads %v", s.Present)
	}
	enginetest.Do(t, second, group.Request{Op: group.OpAcquire, Reaches: 2})
	if s := enginetest.Do(t, again, group.Request{Op: group.OpRenew}); len(s.Present) != 1 || s.Present[0].Reaches != 2 {
		t.Errorf("b has confirmed, and the leader reads %v", s.Present)
	}
	enginetest.Do(t, again, group.Request{Op: group.OpRelease})
	if s := enginetest.Do(t, second, group.Request{Op: group.OpAcquire, Reaches: 2}); s.Holder != b {
		t.Fatalf("b reads %+v", s)
	}
	if s := enginetest.Do(t, again, group.Request{Op: group.OpAcquire, Reaches: 1}); s.Holder != b || len(s.Present) != 0 {
		t.Errorf("a reads %+v: a leader is not among those that do not lead", s)
	}

	short := open(t, cfg, b, time.Second) // b, whose Lease runs out after 10 s still
	enginetest.Do(t, again, group.Request{Op: group.OpAcquire, Reaches: 2})
	if s := enginetest.Do(t, short, group.Request{Op: group.OpRenew}); s.Holder != b {
		t.Fatalf("b reads %+v", s)
	}
	enginetest.Do(t, again, group.Request{Op: group.OpAcquire, Reaches: 1})
	deadline := time.After(30 * time.Second)
	for _, what := range []string{"leaves", "is forgotten"} {
		for seen := false; ; <-time.After(20 * time.Millisecond) {
			s := enginetest.Do(t, short, group.Request{Op: group.OpRenew})
			seen = seen || len(s.Present) > 0
			if what == "leaves" && seen && len(s.Present) == 0 || what == "is forgotten" && !api.annotated("isobar.dev/present") {
				break
			}
			select {
			case <-deadline:
				t.Fatalf("what a left never %s", what)
			default:
			}
		}
	}
}
