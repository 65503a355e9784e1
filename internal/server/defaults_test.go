package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
)

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
