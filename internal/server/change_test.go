package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// put writes to the admin API and returns the version of the plan that has it.
func (w *world) put(path, body string) (status int, answer map[string]any) {
	w.t.Helper()
	status = w.operate(http.MethodPut, "127.0.0.1", path, body, &answer)
	return status, answer
}

// TestChangesDoNotWaitForTheTick: the first change is in a published plan at
// once; a burst coalesces, and the whole of it is in within the hold-off.
func TestChangesDoNotWaitForTheTick(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	cfg.Tick = time.Hour
	inWorld(t, cfg, func(w *world) {
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		synctest.Wait()
		before := w.server.Plan().Version
		began := time.Now()
		status, answer := w.put("/v1/services/checkout/endpoints/10.2.0.1:80/health", "draining")
		if status != http.StatusOK || time.Since(began) > 0 {
			t.Errorf("answered %d %v after %v, want 200 at once", status, answer, time.Since(began))
		}
		if got := w.server.Plan().Version; got != before+1 {
			t.Errorf("version %d after one change of %d", got, before)
		}
		// Forty changes in the next 80 ms: each is published before it is
		// answered, but not with a plan of its own.
		done := make(chan int, 40)
		for i := range 40 {
			go func() {
				time.Sleep(time.Duration(2*i) * time.Millisecond) //nolint:forbidigo // virtual time
				health := []string{"unhealthy", "healthy"}[i%2]
				status, _ := w.put(fmt.Sprintf("/v1/services/checkout/endpoints/10.%d.0.%d:80/health", i%4, i/4%4+1), health)
				done <- status
			}()
		}
		for range 40 {
			if status := <-done; status != http.StatusOK {
				t.Errorf("answered %d", status)
			}
		}
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("the burst was published after %v", took)
		}
		if plans := w.server.Plan().Version - before; plans > 4 {
			t.Errorf("%d plans for one change and a burst within 80 ms", plans)
		}
	})
}

// TestUnhealthyZoneIsLeftAtOnce: when operators mark a zone unhealthy, clients
// are told at once and the whole share moves, without pacing.
func TestUnhealthyZoneIsLeftAtOnce(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	inWorld(t, cfg, func(w *world) {
		w.start(everywhere(300)...)
		for range 10 {
			w.tick()
		}
		for e := range 4 {
			if status, answer := w.put(fmt.Sprintf("/v1/services/checkout/endpoints/10.3.0.%d:80/health", e+1), "unhealthy"); status != http.StatusOK {
				t.Errorf("answered %d %v", status, answer)
			}
		}
		p := w.server.Plan()
		noViolations(t, p)
		if s := worstShare(p, "us/b"); s > 0 {
			svc, _ := p.Service("checkout")
			t.Errorf("a source still sends %.3f to us/b: %+v", s, svc.Sites[site(t, p, "us/b")])
		}
		if s := p.Assignment("checkout", loc("us/b")).Share(loc("us/a")); s < 0.99 {
			t.Errorf("us/b sends %.3f to us/a, want all: it is nearest and has room", s)
		}
	})
}

// TestServiceComesAndGoes: a service of the API is served as soon as the PUT is
// answered, to clients that asked for it before it existed, and is emptied when
// it is deleted.
func TestServiceComesAndGoes(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	inWorld(t, cfg, func(w *world) {
		agent, err := fleet.NewAgent(fleet.AgentOptions{Conn: w.conn, ID: "early", Locality: loc("us/a"), Services: []string{"pay"}})
		if err != nil {
			t.Fatal(err)
		}
		go agent.Run(w.ctx)
		synctest.Wait()
		if a := agent.Assignment("pay"); a != nil {
			t.Fatalf("an assignment of a service that does not exist: %v", a)
		}
		if status, answer := w.put("/v1/services/pay", `{"localities": [{"locality": "us/a", "endpoints": ["10.9.0.1:80"]}]}`); status != http.StatusOK {
			t.Fatalf("answered %d %v", status, answer)
		}
		synctest.Wait()
		if a := agent.Assignment("pay"); len(a.GetEndpoints()) != 1 {
			t.Errorf("assignment after the PUT: %v", a)
		}
		if status, _ := w.put("/v1/services", `[]`); status != http.StatusOK {
			t.Errorf("answered %d", status)
		}
		synctest.Wait()
		if a := agent.Assignment("pay"); len(a.GetEndpoints()) != 0 {
			t.Errorf("assignment after the service is gone: %v", a)
		}
	})
}

// TestDefaultsOfTheAPI: changed defaults do not reach services that were written
// over the API before; a preview tells how many those are.
func TestDefaultsOfTheAPI(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	inWorld(t, cfg, func(w *world) {
		w.start(everywhere(100)...)
		w.tick()
		warned := func(defaults string) string {
			t.Helper()
			var out admin.Previewed
			if code := w.order("/v1/plan", "defaults: "+defaults+"\n"+fileOf("1000"), &out); code != http.StatusOK {
				t.Fatalf("answered %d", code)
			}
			var told []string
			for _, p := range out.Warnings {
				told = append(told, p.Error)
			}
			return strings.Join(told, "\n")
		}
		const says = "services of the API keep the defaults that were in force when they were written"
		if told := warned("{max_shed: 0.5}"); strings.Contains(told, says) {
			t.Errorf("without services of the API: %s", told)
		}
		for _, name := range []string{"a", "b"} {
			if code, answer := w.put("/v1/services/"+name, `{"localities": [{"locality": "us/a", "endpoints": ["10.9.0.1:80"]}]}`); code/100 != 2 {
				t.Fatalf("answered %d %v", code, answer)
			}
		}
		if told := warned("{max_shed: 0.5}"); !strings.Contains(told, "defaults have changed, but 2 "+says) {
			t.Errorf("with two: %s", told)
		}
		if told := warned("{}"); strings.Contains(told, says) {
			t.Errorf("with the same defaults: %s", told)
		}
	})
}
