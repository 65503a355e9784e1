package server_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestProbesKnowTheTick: a loop that rests for its configured tick is alive.
func TestProbesKnowTheTick(t *testing.T) {
	cfg := configuration(t)
	cfg.Tick = 5 * time.Minute
	inWorld(t, cfg, func(w *world) {
		for range 4 {
			time.Sleep(4 * time.Minute) //nolint:forbidigo // virtual time
			synctest.Wait()
			for _, path := range []string{"/livez", "/readyz"} {
				if status := w.get(path); status != http.StatusOK {
					t.Errorf("%s answers %d while the loop rests", path, status)
				}
			}
		}
	})
}

func (w *world) get(path string) int {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://127.0.0.1"+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.api.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
