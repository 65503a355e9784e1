package interop

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// sender sends requests to a listener, 50 a second, and counts those that failed.
type sender struct {
	sent, failed atomic.Int64
	last         atomic.Pointer[string] // failure
	stop, done   chan struct{}
}

func startSender(t *testing.T, listener, host string) *sender {
	t.Helper()
	s := &sender{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-ticker.C:
			}
			status, body, err := request(t.Context(), listener, host)
			s.sent.Add(1)
			if err != nil || status != http.StatusOK {
				text := fmt.Sprintf("%d %s %v", status, body, err)
				s.failed.Add(1)
				s.last.Store(&text)
			}
		}
	}()
	t.Cleanup(s.end)
	return s
}

func (s *sender) end() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	<-s.done
}

// services replaces the services of the configuration file.
func (s *isobar) services(text string) {
	s.t.Helper()
	data := string(read(s.t, s.config))
	head, _, _ := strings.Cut(data, "services:")
	if err := os.WriteFile(s.config+".new", []byte(head+text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.config+".new", s.config); err != nil {
		s.t.Fatal(err)
	}
}

// TestEnvoyServiceRenamedUnderLoad: a service that is renamed while an Envoy sends
// to it is served under its old name, too, and no request fails: not on the
// reload, and not over a restart. Once it is confirmed, it leaves the Envoy with
// no endpoints, both for one that is connected and for one that comes back.
func TestEnvoyServiceRenamedUnderLoad(t *testing.T) {
	t.Parallel()
	for _, version := range envoyVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			web := namedBackend(t, "c")
			other := webService("o1", web) + webService("o2", web) + webService("o3", web)
			s := startIsobar(t, "services:\n"+webService("checkout", web)+other)
			listener := testhelp.FreePort(t)
			p := startEnvoy(t, version, envoyBootstrap(t, "--server", s.xds, "--locality", "us/a", "--node-id", "e1",
				"--service", "checkout", "--listener", listener))
			answers(t, listener, "checkout", "c")
			load := startSender(t, listener, "checkout")
			s.demand("checkout")
			s.services("services:\n" + webService("cart", web) + other)
			digest := s.holds("checkout")
			s.kill()
			s.run()
			if again := s.holds("checkout"); again != digest {
				t.Errorf("the digest was %s, and is %s after a restart", digest, again)
			}
			s.reports("e1")
			load.end()
			if n := load.failed.Load(); n > 0 {
				t.Errorf("%d of %d requests failed: %s", n, load.sent.Load(), *load.last.Load())
			}
			s.confirm(digest)
			p.endpoints(t, "checkout", 0)
		})
	}
}

// TestEnvoyServiceRemovedWhileStopped: an Envoy that comes back to a server whose
// file no longer has a service loses its endpoints, as one does that is connected
// when the service goes: with both kinds of streams.
func TestEnvoyServiceRemovedWhileStopped(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"GRPC", "DELTA_GRPC"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			web := namedBackend(t, "c")
			other := webService("o1", web) + webService("o2", web) + webService("o3", web)
			s := startIsobar(t, "services:\n"+webService("checkout", web)+other)
			file := envoyBootstrap(t, "--server", s.xds, "--locality", "us/a", "--node-id", "e1", "--service", "checkout", "--service", "o1")
			file = strings.Replace(file, "ads_config:\n    api_type: GRPC", "ads_config:\n    api_type: "+kind, 1)
			p := startEnvoy(t, envoyVersions()[0], file)
			p.endpoints(t, "checkout", 1)
			s.kill()
			s.services("services:\n" + other)
			s.run()
			p.endpoints(t, "checkout", 0)
			p.endpoints(t, "o1", 1)
		})
	}
}

// endpoints waits until a cluster has so many.
func (p *proxy) endpoints(t *testing.T, cluster string, n int64) {
	t.Helper()
	await(t, fmt.Sprint(n, " endpoints of ", cluster), func() error {
		stats, err := p.Stats(t.Context(), "^cluster."+cluster+".membership_total$")
		if have, ok := stats["cluster."+cluster+".membership_total"]; err == nil && (!ok || have != n) {
			err = fmt.Errorf("%v", stats)
		}
		return err
	})
}

// demand waits until the plan knows that clients send to a service.
func (s *isobar) demand(service string) {
	s.t.Helper()
	await(s.t, "demand of "+service, func() error {
		_, source, err := s.source(service)
		if err == nil && source.Demand < 10 {
			err = fmt.Errorf("demand %g", source.Demand)
		}
		return err
	})
}

// holds waits until a removed service is held, and returns the digest.
func (s *isobar) holds(service string) (digest string) {
	s.t.Helper()
	await(s.t, service+" held", func() error {
		var status admin.Status
		if err := s.get("/v1/status", &status); err != nil {
			return err
		}
		if status.Held == nil || len(status.Held.Services) != 1 || status.Held.Services[0].Service != service {
			return fmt.Errorf("held %+v", status.Held)
		}
		digest = status.Held.Digest
		return nil
	})
	return digest
}

// confirm takes what is held, as an operator does.
func (s *isobar) confirm(digest string) {
	s.t.Helper()
	if err := command(s.t.Context(), ".", isobarPath, "reload", "--admin", "http://"+s.api, "--confirm", digest); err != nil {
		s.t.Fatal(err)
	}
}
