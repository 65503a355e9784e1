package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/reload"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// restart ends the server, and starts one with what it kept.
func (w *heldWorld) restart() {
	w.t.Helper()
	w.stop()
	w.serve()
}

// TestHeldLocalitiesStayOverRestarts: a file that takes localities from many services is not
// in force after a restart, either.
func TestHeldLocalitiesStayOverRestarts(t *testing.T) {
	t.Parallel()
	both := "us/a: 10.0.0.1:80, us/b: 10.0.0.2:80"
	w := newHeldWorld(t, "c")
	w.writeIn(map[string]string{"a": both, "b": both})
	w.in("a", "b")
	w.writeIn(map[string]string{"a": "us/b: 10.0.0.2:80", "b": "us/b: 10.0.0.2:80", "d": "us/b: 10.0.0.4:80"})
	const removes = "2 of the 4 localities of all services, or all endpoints there"
	testhelp.Eventually(t, "a held change", func() bool { h := w.status().Held; return h != nil && h.Removes == removes })
	w.restart()
	w.in("a", "b")
	w.refused()
	if a, b := w.endpoints("a"), w.endpoints("b"); a != 2 || b != 2 {
		t.Errorf("after the restart a has %d endpoints and b has %d", a, b)
	}
	if h := w.status().Held; h == nil || h.Removes != removes {
		t.Fatalf("held after the restart: %+v", h)
	}
	if left, err := w.Reload(w.status().Held.Digest); err != nil || left != nil {
		t.Fatalf("confirmed: %+v, %v", left, err)
	}
	testhelp.Eventually(t, "one endpoint of each", func() bool { return w.endpoints("a") == 1 && w.endpoints("b") == 1 })
}

// TestHeldStepsStayOverRestarts: steps count together over a restart, too.
func TestHeldStepsStayOverRestarts(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c", "d", "e")
	w.write("a", "b", "c", "d")
	w.in("a", "b", "c", "d")
	w.write("a", "b", "c")
	testhelp.Eventually(t, "a held change", func() bool { return w.status().Held != nil })
	w.restart()
	w.in("a", "b", "c", "d")
	w.refused()
	if h := w.status().Held; h == nil || h.Removes != "2 of 5 services, together with earlier removals" {
		t.Errorf("held after the restart: %+v", h)
	}
}

// TestHeldServicesOfSilentClientsStayOverRestarts: who reports no load is in no saved plan.
func TestHeldServicesOfSilentClientsStayOverRestarts(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c", "d")
	leave := w.silent("a")
	defer leave()
	w.write("b", "c", "d", "e")
	w.in("a", "b", "c", "d", "e")
	w.restart()
	w.in("a", "b", "c", "d", "e")
	if h := w.status().Held; h == nil || len(h.Services) != 1 || h.Services[0].Service != "a" {
		t.Errorf("held after the restart: %+v", h)
	}
}

// TestFilesOfTheStartAreHeldForGood: what a file lost while the process was down stays over
// later changes and restarts, however much the file adds, until an operator confirms.
func TestFilesOfTheStartAreHeldForGood(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c", "d", "e", "f")
	w.in("a", "b", "c", "d", "e", "f")
	w.stop()
	w.write("a", "b", "c", "g", "h", "i")
	for range 2 {
		w.serve()
		w.in("a", "b", "c", "d", "e", "f")
		w.refused()
		w.in("a", "b", "c", "d", "e", "f")
		if h := w.status().Held; h == nil || h.Removes != "3 of 6 services" {
			t.Fatalf("held after the start: %+v", h)
		}
		w.stop()
		w.write("a", "b", "c", "g", "h", "i", "j")
	}
	w.serve()
	w.refused()
	held := w.status().Held
	if held == nil {
		t.Fatal("nothing is held after the third start")
	}
	if left, err := w.Reload(held.Digest); err != nil || left != nil {
		t.Fatalf("confirmed: %+v, %v", left, err)
	}
	w.in("a", "b", "c", "g", "h", "i", "j")
	w.restart()
	w.in("a", "b", "c", "g", "h", "i", "j")
}

// TestServicesWithLoadStayThatGoWhileStopped: a service that clients send to stays where the
// file loses it while the process is down.
func TestServicesWithLoadStayThatGoWhileStopped(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c", "d")
	stop := w.report("a")
	w.loaded("a")
	stop()
	w.stop()
	w.write("b", "c", "d")
	w.serve()
	w.in("a", "b", "c", "d")
	if h := w.status().Held; h == nil || len(h.Services) != 1 || h.Services[0].Rate < 10 || h.Removes != "" {
		t.Errorf("held after the start: %+v", h)
	}
}

// TestHeldUntilConfirmedIsTold: a service that a control plane listed, and that the held change of
// a start removes, does not leave with its load, and is not said to.
func TestHeldUntilConfirmedIsTold(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "a", "b", "c", "d")
	w.in("a", "b", "c", "d")
	w.write("d")
	w.change(func(was *reload.Configured) { was.Listed = []string{"a"} })
	w.in("a", "b", "c", "d")
	h := w.status().Held
	if h == nil || len(h.Services) != 1 || h.Services[0].Service != "a" || !h.Services[0].Confirm {
		t.Fatalf("held after the start: %+v", h)
	}
	if a := attends(t, w.status(), admin.RemovalHeld); a.Service != "" {
		t.Errorf("first it tells %+v, want what the file removes", a)
	}
	for _, a := range w.status().Attention {
		if a.Service == "a" && (strings.Contains(a.Text, "until they stop") || !strings.Contains(a.Text, h.Digest)) {
			t.Errorf("it tells %q", a.Text)
		}
	}
}

// TestHeldCallsAreForgottenInACircle: where calls of a held service and of the file make a circle, which
// nothing allows, the service is held without its calls: at a reload, in its preview, and at a start.
func TestHeldCallsAreForgottenInACircle(t *testing.T) {
	t.Parallel()
	const place = "localities: [{locality: us/a, endpoints: [\"10.0.0.1:80\"]}]"
	w := newHeldWorld(t, "c")
	w.writeServices("\n- {name: a, " + place + ", calls: [{service: b, per_request: 1}]}\n- {name: b, " + place + "}\n- {name: c, " + place + "}\n- {name: d, " + place + "}")
	w.in("a", "b", "c", "d")
	stop := w.report("a")
	defer stop()
	w.loaded("a")
	w.writeServices("\n- {name: b, " + place + ", calls: [{service: a, per_request: 1}]}\n- {name: c, " + place + "}\n- {name: d, " + place + "}")
	w.previews()
	held := func() bool {
		h := w.status().Held
		return h != nil && len(h.Services) == 1 && h.Services[0].Service == "a"
	}
	testhelp.Eventually(t, "a held service", held)
	w.change(func(was *reload.Configured) { // the file changed while the server was down
		for i := range was.Services {
			switch s := &was.Services[i]; s.Name {
			case "a":
				s.Calls = []isobar.Call{{Service: "b", PerRequest: 1}}
			case "b":
				s.Calls = nil
			}
		}
	})
	w.in("a", "b", "c", "d")
	if !held() {
		t.Errorf("held after the start: %+v; the log: %s", w.status().Held, w.log.String())
	}
}

// previews asserts that the effect of the file as it is can be shown.
func (w *heldWorld) previews() {
	w.t.Helper()
	body, err := os.ReadFile(w.path)
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.AdminAddress()+"/v1/plan", bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		w.t.Errorf("the preview of the file: %s %s, %v", answer.Status, text, err)
	}
}

// change restarts the server after a change of what it has kept of the services in force.
func (w *heldWorld) change(do func(*reload.Configured)) {
	w.t.Helper()
	w.stop()
	defer w.serve()
	v, err := w.kept.Get(w.t.Context(), "configured")
	if err != nil {
		w.t.Fatal(err)
	}
	var was reload.Configured
	if err := json.Unmarshal(v.Data, &was); err != nil {
		w.t.Fatal(err)
	}
	do(&was)
	data, err := json.Marshal(was)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.kept.CompareAndSwap(w.t.Context(), "configured", v.Revision, data); err != nil {
		w.t.Fatal(err)
	}
}

// refused waits until whoever watches the file has looked at it, and it is not in force.
func (w *heldWorld) refused() {
	w.t.Helper()
	testhelp.Eventually(w.t, "the file is not in force", func() bool { return strings.Contains(w.log.String(), "configuration file refused") })
}

// writeIn replaces the file; places are those of each service, as "LOCALITY: ADDRESS".
func (w *heldWorld) writeIn(services map[string]string) {
	w.t.Helper()
	var list []string
	for _, name := range slices.Sorted(maps.Keys(services)) {
		var places []string
		for at := range strings.SplitSeq(services[name], ", ") {
			locality, address, _ := strings.Cut(at, ": ")
			places = append(places, fmt.Sprintf("{locality: %s, endpoints: [%q]}", locality, address))
		}
		list = append(list, fmt.Sprintf("\n- {name: %s, localities: [%s]}", name, strings.Join(places, ", ")))
	}
	w.writeServices(strings.Join(list, ""))
}
