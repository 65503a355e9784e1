package admin_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// stalled is a client that takes nothing of its answer until it is let go.
type stalled struct {
	httptest.ResponseRecorder

	began, release chan struct{}
}

func (s *stalled) Write(b []byte) (int, error) {
	s.began <- struct{}{}
	<-s.release
	return len(b), nil
}

// TestSlowReadersAreBounded: what is written for clients that do not read takes
// a bounded part of the memory; small answers go on, and large ones do when the
// slow readers are gone.
func TestSlowReadersAreBounded(t *testing.T) {
	w := newWorld()
	opts := optionsOf(w)
	opts.MaxAnswers = 3000
	s, err := admin.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) *httptest.ResponseRecorder {
		out := httptest.NewRecorder()
		s.Handler().ServeHTTP(out, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody))
		return out
	}
	size := get("/v1/plan").Body.Len()
	if size == 0 || size > 3000 {
		t.Fatalf("a plan has %d bytes", size)
	}
	began, release := make(chan struct{}), make(chan struct{})
	var readers sync.WaitGroup
	for range 3000 / size {
		readers.Go(func() {
			slow := &stalled{ResponseRecorder: *httptest.NewRecorder(), began: began, release: release}
			s.Handler().ServeHTTP(slow, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/plan", http.NoBody))
		})
		<-began
	}
	if a := get("/v1/plan"); a.Code != http.StatusServiceUnavailable || a.Header().Get("Retry-After") == "" || !strings.Contains(a.Body.String(), "too many large answers") {
		t.Errorf("one too many: %d %v %s", a.Code, a.Header(), a.Body)
	}
	for _, path := range []string{"/v1/status", "/v1/services/legacy", "/livez", "/readyz"} {
		if a := get(path); a.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
	}
	close(release)
	readers.Wait()
	if a := get("/v1/plan"); a.Code != http.StatusOK || a.Body.Len() != size {
		t.Errorf("afterwards: %d, %d bytes", a.Code, a.Body.Len())
	}
}

// TestFewProfilesAtATime: a profile can take tens of megabytes, and stops the
// world.
func TestFewProfilesAtATime(t *testing.T) {
	s, err := admin.New(optionsOf(newWorld()))
	if err != nil {
		t.Fatal(err)
	}
	profile := func(w http.ResponseWriter) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/debug/pprof/goroutine?debug=2", http.NoBody)
		r.RemoteAddr = "127.0.0.1:1"
		s.Handler().ServeHTTP(w, r)
	}
	began, release := make(chan struct{}, 1000), make(chan struct{})
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() { profile(&stalled{ResponseRecorder: *httptest.NewRecorder(), began: began, release: release}) })
		<-began
	}
	refused := httptest.NewRecorder()
	profile(refused)
	if refused.Code != http.StatusServiceUnavailable || refused.Header().Get("Retry-After") == "" {
		t.Errorf("one too many: %d %v", refused.Code, refused.Header())
	}
	close(release)
	readers.Wait()
	again := httptest.NewRecorder()
	profile(again)
	if again.Code != http.StatusOK {
		t.Errorf("afterwards: %d", again.Code)
	}
}

// TestReadsThatWaitHoldUpNoOthers: a question that the loop does not answer
// keeps nobody from the metrics.
func TestReadsThatWaitHoldUpNoOthers(t *testing.T) {
	w := newWorld()
	asked := make(chan struct{})
	srv := start(t, w, func(o *admin.Options) {
		o.Operator = mute{asked: asked}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	for range 2 {
		waiting.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/v1/history", http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			if resp, err := srv.Client().Do(req); err == nil {
				_ = resp.Body.Close()
			}
		})
		<-asked
	}
	for _, path := range []string{"/metrics", "/v1/plan", "/v1/clients"} {
		if a := do(t, srv, http.MethodGet, path, ""); a.code != http.StatusOK {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
}

// mute is a loop that does not answer.
type mute struct {
	unchecked

	asked chan struct{}
}

func (m mute) History(ctx context.Context, _ string) ([]plan.Change, error) {
	m.asked <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (mute) Pause(context.Context, plan.Pause) (*plan.Plan, []string, error) { return nil, nil, nil }

func (mute) Resume(context.Context, plan.Pause) (plan.Pauses, *plan.Plan, []string, error) {
	return nil, nil, nil, nil
}

func (mute) Rollback(context.Context, uint64, plan.Pause, bool) (*plan.Plan, *plan.Plan, []string, error) {
	return nil, nil, nil, nil
}

// TestADefectEndsOneRequest: a panic in a handler is answered with 500 and told
// in the log, with a bound; the next request is answered.
func TestADefectEndsOneRequest(t *testing.T) {
	var log testhelp.Log
	srv := start(t, newWorld(), func(o *admin.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		plannerOf(o).explain = func(*plan.Plan, string, isobar.Locality) (plan.Explanation, error) { panic("a bug") }
	})
	for range 100 {
		a := do(t, srv, http.MethodGet, "/v1/explain?service=legacy&from=us-east/b", "")
		if a.code != http.StatusInternalServerError || !strings.Contains(a.body, "internal error") {
			t.Fatalf("got %d %s", a.code, a.body)
		}
	}
	if text := log.String(); !strings.Contains(text, "a bug") || !strings.Contains(text, "answers_test.go") || strings.Count(text, "a bug") > 50 {
		t.Errorf("the log has %d lines of it:\n%.2000s", strings.Count(text, "a bug"), text)
	}
	if a := do(t, srv, http.MethodGet, "/v1/status", ""); a.code != http.StatusOK {
		t.Errorf("afterwards: %d %s", a.code, a.body)
	}
}

// TestHalfAnAnswerIsNotAWholeOne: where an answer has begun, a defect ends the
// connection.
func TestHalfAnAnswerIsNotAWholeOne(t *testing.T) {
	srv := start(t, newWorld(), func(o *admin.Options) {
		o.Polls = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<16))
			panic("a bug")
		})
	})
	resp, err := srv.Client().Post(srv.URL+"/v3/discovery:health_check", "application/json", http.NoBody)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if n, err := new(bytes.Buffer).ReadFrom(resp.Body); err == nil {
		t.Errorf("%d bytes came as a whole answer", n)
	}
}

// TestLongWhatIfIsRefused: the entries of a what-if take many times the memory of their text, so a long body
// is refused before it is decoded.
func TestLongWhatIfIsRefused(t *testing.T) {
	opts := optionsOf(newWorld())
	opts.Operator = mute{}
	s, err := admin.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	for entries, want := range map[int]int{1_000: http.StatusOK, 1_000_000: http.StatusRequestEntityTooLarge} {
		body := `{"demand": [` + strings.Repeat("{},", entries-1) + "{}]}"
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/whatif", strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		if s.Handler().ServeHTTP(w, r); w.Code != want {
			t.Errorf("%d entries: %d %s, want %d", entries, w.Code, w.Body, want)
		}
	}
}

// TestPreviewsWaitForTheirTurn: a question that comes while another is played
// waits for it, since several consoles ask at the same time; it is refused when
// that takes long.
func TestPreviewsWaitForTheirTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		opts := optionsOf(newWorld())
		opts.Operator = mute{}
		s, err := admin.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(w http.ResponseWriter) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/whatif", strings.NewReader("{}"))
			r.RemoteAddr = "127.0.0.1:1"
			r.Header.Set("Content-Type", "application/json")
			s.Handler().ServeHTTP(w, r)
		}
		began, release := make(chan struct{}, 1000), make(chan struct{})
		late, soon, alone := httptest.NewRecorder(), httptest.NewRecorder(), httptest.NewRecorder()
		var askers sync.WaitGroup
		askers.Go(func() { ask(&stalled{ResponseRecorder: *httptest.NewRecorder(), began: began, release: release}) })
		<-began
		askers.Go(func() { ask(late) })
		<-time.After(6 * time.Second)
		askers.Go(func() { ask(soon) })
		<-time.After(2 * time.Second)
		close(release)
		askers.Wait()
		ask(alone)
		if late.Code != http.StatusServiceUnavailable || late.Header().Get("Retry-After") == "" {
			t.Errorf("after 6 s: %d %v %s", late.Code, late.Header(), late.Body)
		}
		if soon.Code != http.StatusOK || alone.Code != http.StatusOK {
			t.Errorf("after 2 s: %d %s; alone: %d", soon.Code, soon.Body, alone.Code)
		}
	})
}
