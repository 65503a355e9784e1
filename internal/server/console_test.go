package server_test

import (
	"net/http"
	"testing"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestConsoleSwitchedOff: by the configuration or by the command line, the page is gone
// and the API stays.
func TestConsoleSwitchedOff(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*config.Config)
		no     bool
		want   int
	}{
		"on":                   {func(*config.Config) {}, false, http.StatusOK},
		"by the configuration": {func(c *config.Config) { c.Admin.Console = false }, false, http.StatusNotFound},
		"by the command line":  {func(*config.Config) {}, true, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := configuration(t)
			cfg.Admin.Console = true
			tt.change(cfg)
			bubble.Test(t, func(t *testing.T) {
				kept := store.NewMemory()
				defer func() { _ = kept.Close() }()
				runWith(t, cfg, server.Options{Store: kept, NoConsole: tt.no}, func(w *world) {
					if got := w.get("/ui/"); got != tt.want {
						t.Errorf("/ui/: %d, want %d", got, tt.want)
					}
					if got := w.get("/v1/status"); got != http.StatusOK {
						t.Errorf("/v1/status: %d", got)
					}
				})
			})
		})
	}
}
