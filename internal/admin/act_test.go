package admin_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

// freezer pauses and resumes, each of which makes the world's next plan.
type freezer struct {
	admin.Operator

	w      *world
	paused plan.Pauses
}

func (*freezer) Breaches(context.Context, *admin.Drain) ([]string, error) { return nil, nil }

func (f *freezer) Pause(_ context.Context, p plan.Pause) (*plan.Plan, []string, error) {
	f.paused = f.paused.With(p)
	return f.next(), nil, nil
}

func (f *freezer) Resume(_ context.Context, of plan.Pause) (plan.Pauses, *plan.Plan, []string, error) {
	resumed, remaining, err := f.paused.Without(of.Service)
	if err != nil {
		return nil, nil, nil, err
	}
	f.paused = remaining
	return resumed, f.next(), nil, nil
}

func (f *freezer) next() *plan.Plan {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.change()
	f.w.current.Paused = f.paused
	return f.w.current
}

// stateOf reads what the stream shows of a service.
func stateOf(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/stream?service=legacy", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var line struct{ State string }
	if err := json.NewDecoder(resp.Body).Decode(&line); err != nil || line.State == "" {
		t.Fatalf("%+v %v", line, err)
	}
	return line.State
}

// TestWritesOnSeenState: a write that names what its page saw is carried out once,
// and refused after anybody changed the service.
func TestWritesOnSeenState(t *testing.T) {
	w := newWorld()
	srv := start(t, w, func(o *admin.Options) { o.Operator = &freezer{w: w} })
	post := func(path, body, state string) answer {
		t.Helper()
		if state == "" {
			return do(t, srv, "POST", path, body)
		}
		return do(t, srv, "POST", path, body, "If-Match", `"`+state+`"`)
	}
	const drain = `{"service": "legacy", "locality": "us-east/b", "who": "ann", "reason": "test"}`
	first := stateOf(t, srv.URL)
	if again := stateOf(t, srv.URL); again != first {
		t.Fatalf("the state changes by itself: %s, %s", first, again)
	}
	var drained admin.Drained
	a := post("/v1/drain", drain, first)
	a.decode(t, &drained)
	if a.code != http.StatusOK || len(drained.Addresses) != 1 || drained.Version == "" || len(w.said) != 1 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	for _, path := range []string{"/v1/drain", "/v1/undrain", "/v1/pause", "/v1/resume", "/v1/rollback"} {
		body := drain
		switch {
		case strings.HasSuffix(path, "e"):
			body = `{"service": "legacy"}`
		case strings.HasSuffix(path, "k"):
			body = `{"service": "legacy", "version": "100"}`
		}
		if a := post(path, body, first); a.code != http.StatusPreconditionFailed {
			t.Errorf("%s on what is no more: %d %s", path, a.code, a.body)
		}
	}
	second := stateOf(t, srv.URL)
	if a := post("/v1/pause", `{"service": "legacy"}`, second); a.code != http.StatusOK {
		t.Errorf("a pause on what is: %d %s", a.code, a.body)
	}
	if a := post("/v1/undrain", drain, second); a.code != http.StatusPreconditionFailed {
		t.Errorf("after a pause: %d %s", a.code, a.body)
	}
	third := stateOf(t, srv.URL)
	if a := post("/v1/undrain", drain, third); a.code != http.StatusOK || len(w.said) != 0 {
		t.Errorf("an undrain on what is: %d %s", a.code, a.body)
	}
	if a := post("/v1/undrain", drain, ""); a.code != http.StatusNotFound {
		t.Errorf("an undrain of nothing: %d %s", a.code, a.body)
	}
	if a := post("/v1/pause", `{}`, third); a.code != http.StatusBadRequest {
		t.Errorf("a pause of all on the state of one: %d %s", a.code, a.body)
	}
}

// TestDrainRequests: what is refused, and what is guarded as each drain is.
func TestDrainRequests(t *testing.T) {
	w := newWorld()
	var asked []admin.Drain
	breaches := []string{"us-east/c at 104.8% of its capacity, above its ceiling of 80.0%"}
	srv := start(t, w, func(o *admin.Options) {
		operatorOf(o).breaches = func(_ context.Context, d *admin.Drain) ([]string, error) {
			asked = append(asked, *d)
			return breaches, nil
		}
	})
	for body, code := range map[string]int{
		`{"service": "legacy", "locality": "us-east"}`:                           http.StatusConflict,
		`{"service": "legacy", "address": "127.0.0.1:50051"}`:                    http.StatusConflict,
		`{"service": "legacy", "address": "127.0.0.1:1"}`:                        http.StatusNotFound,
		`{"service": "nobody", "locality": "us-east"}`:                           http.StatusNotFound,
		`{"service": "legacy"}`:                                                  http.StatusBadRequest,
		`{"service": "legacy", "locality": "us-east", "address": "127.0.0.1:1"}`: http.StatusBadRequest,
		`{"locality": "us-east"}`:                                                http.StatusBadRequest,
		`{"service": "legacy", "locality": "us-east", "now": true}`:              http.StatusBadRequest,
		``: http.StatusBadRequest,
	} {
		breaches = nil
		if code == http.StatusConflict {
			breaches = []string{"us-east/c at 104.8% of its capacity, above its ceiling of 80.0%"}
		}
		if a := do(t, srv, "POST", "/v1/drain", body); a.code != code {
			t.Errorf("%s: %d instead of %d: %s", body, a.code, code, a.body)
		}
	}
	if len(w.said) != 0 || len(asked) < 2 {
		t.Errorf("refused drains: %v were made, %v were asked about", w.said, asked)
	}
	breaches = []string{"too much"}
	if a := do(t, srv, "POST", "/v1/drain?force=true", `{"service": "legacy", "locality": "us-east"}`); a.code != http.StatusOK || len(w.said) != 1 {
		t.Errorf("a forced drain: %d %s", a.code, a.body)
	}
	readOnly := start(t, newWorld(), func(o *admin.Options) { o.Writable = false })
	if a := do(t, readOnly, "POST", "/v1/drain", `{"service": "legacy", "locality": "us-east"}`); a.code != http.StatusForbidden {
		t.Errorf("read-only: %d", a.code)
	}
}

func TestAccess(t *testing.T) {
	for _, tt := range []struct {
		change func(*admin.Options)
		token  string
		want   admin.Access
	}{
		{nil, "", admin.Access{Writable: true, Token: "none"}},
		{func(o *admin.Options) { o.Writable = false }, "", admin.Access{Token: "none"}},
		{func(o *admin.Options) { o.Token = func(s string) bool { return s == "x" } }, "", admin.Access{Writable: true, Token: "writes"}},
		{func(o *admin.Options) { o.Token, o.TokenForAll = func(s string) bool { return s == "x" }, true }, "x", admin.Access{Writable: true, Token: "all", Shown: true}},
	} {
		var got admin.Access
		do(t, start(t, newWorld(), tt.change), "GET", "/v1/access", "", "Authorization", "Bearer "+tt.token).decode(t, &got)
		if got != tt.want {
			t.Errorf("%+v instead of %+v", got, tt.want)
		}
	}
}
