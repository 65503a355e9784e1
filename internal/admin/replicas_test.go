package admin_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

// group is a group of replicas of which another one leads, unless it has none.
type group struct {
	leader  *admin.Server
	failure error
	passed  []admin.Forwarded
}

func (g *group) State() admin.ReplicaGroup { return admin.ReplicaGroup{Group: "test"} }

func (g *group) AcceptConfig(string) error { return nil }

func (g *group) StepDown(string) (string, error) { return "b", nil }

func (g *group) Order(ctx context.Context, o admin.Forwarded) (status int, body []byte, forwarded bool, err error) {
	if g.failure != nil {
		return 0, nil, true, g.failure
	}
	if g.leader == nil {
		return 0, nil, false, nil
	}
	g.passed = append(g.passed, o)
	status, body = g.leader.CarryOut(ctx, o)
	return status, body, true, nil
}

// decisions is an operator that pauses.
type decisions struct {
	admin.Operator

	paused []plan.Pause
}

func (d *decisions) Pause(_ context.Context, p plan.Pause) (*plan.Plan, []string, error) {
	d.paused = append(d.paused, p)
	return &plan.Plan{Version: 42, Paused: plan.Pauses{}}, nil, nil
}

// TestWritesReachTheLeader asserts that the leader carries out what operators write on a
// follower, once, and that the follower carries out nothing itself.
func TestWritesReachTheLeader(t *testing.T) {
	own, leaders := &decisions{}, &decisions{}
	options := optionsOf(newWorld())
	options.Operator, options.Writable, options.Replicas = leaders, true, &group{failure: errors.New("passed on twice")}
	leader, err := admin.New(options)
	if err != nil {
		t.Fatal(err)
	}
	g := &group{leader: leader}
	follower := start(t, newWorld(), func(o *admin.Options) { o.Operator, o.Replicas = own, g })
	post := func(path, body string) (int, string) {
		a := do(t, follower, http.MethodPost, path, body)
		return a.code, a.body
	}
	if status, text := post("/v1/pause", `{"service": "checkout", "who": "ada"}`); status != http.StatusOK || !strings.Contains(text, "42") {
		t.Fatalf("%d: %s", status, text)
	}
	if len(own.paused) != 0 || len(leaders.paused) != 1 || leaders.paused[0].Service != "checkout" || leaders.paused[0].Who != "ada" {
		t.Fatalf("the follower paused %v, the leader %v", own.paused, leaders.paused)
	}
	if status, text := post("/v1/pause", `{"service": 5}`); status != http.StatusBadRequest {
		t.Fatalf("a bad order: %d: %s", status, text)
	}
	g.failure = errors.New("connection lost")
	if status, text := post("/v1/pause", `{}`); status != http.StatusBadGateway || !strings.Contains(text, "connection lost") {
		t.Fatalf("a leader that does not answer: %d: %s", status, text)
	}
	g.failure, g.leader = nil, nil // this replica leads itself, or nobody does
	if status, text := post("/v1/pause", `{"service": "own"}`); status != http.StatusOK || len(own.paused) != 1 {
		t.Fatalf("%d: %s, paused %v", status, text, own.paused)
	}
}

// TestSingleServerHasNoGroup: a server without a group says so, and nothing needs attention
// because of it.
func TestSingleServerHasNoGroup(t *testing.T) {
	var g admin.ReplicaGroup
	a := do(t, start(t, newWorld(), nil), http.MethodGet, "/v1/replicas", "")
	if a.decode(t, &g); a.code != http.StatusOK || g.Role != admin.RoleAlone || g.Replicas == nil || len(g.Replicas)+len(g.Attention()) > 0 {
		t.Errorf("%d: %+v, needs attention: %v", a.code, g, g.Attention())
	}
}

// TestOnlyWritesAreCarriedOut asserts that another replica can have nothing else done.
func TestOnlyWritesAreCarriedOut(t *testing.T) {
	options := optionsOf(newWorld())
	options.Operator, options.Writable, options.Replicas = &decisions{}, true, &group{}
	leader, err := admin.New(options)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []admin.Forwarded{
		{Method: http.MethodGet, Path: "/v1/plan"}, {Method: http.MethodPost, Path: "/v1/replicas/step-down"},
		{Method: http.MethodGet, Path: "/debug/pprof/"}, {Method: "BAD METHOD", Path: "/v1/pause"}, {Method: http.MethodPost, Path: "%"},
	} {
		if status, body := leader.CarryOut(t.Context(), o); status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			t.Errorf("%s %s: %d: %s", o.Method, o.Path, status, body)
		}
	}
}
