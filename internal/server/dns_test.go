package server_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	"google.golang.org/grpc/test/bufconn"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestEndpointsFromDNS: services of discovery.dns are served with what their names
// resolve to, operators see how things stand, and a reload takes them away.
func TestEndpointsFromDNS(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		pipe := bufconn.Listen(1 << 20)
		handler := miekg.NewServeMux()
		handler.HandleFunc("a.example.", func(w miekg.ResponseWriter, q *miekg.Msg) {
			m := new(miekg.Msg)
			m.SetReply(q)
			rr, err := miekg.NewRR("a.example. 3600 IN A 10.9.0.1")
			if err != nil {
				t.Error(err)
			}
			m.Answer = append(m.Answer, rr)
			_ = w.WriteMsg(m) // the client may have gone
		})
		names := &miekg.Server{Listener: pipe, Handler: handler}
		served := make(chan error, 1)
		started := make(chan struct{})
		names.NotifyStartedFunc = func() { close(started) }
		go func() { served <- names.ActivateAndServe() }()
		<-started
		defer func() {
			if err := names.Shutdown(); err != nil {
				t.Error(err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		}()
		cfg := configuration(t)
		where := cfg.Services[0].Localities[0].Locality
		elsewhere := cfg.Services[0].Localities[1].Locality
		cfg.Discovery.DNS = &config.DNSDiscovery{
			Servers: []string{"10.0.0.2:53"}, MinTTL: config.DefaultMinTTL, Timeout: config.DefaultDNSTimeout, EmptyHold: config.DefaultEmptyHold,
			Services: []config.ResolvedService{{
				Service: isobar.Service{Name: "named", Localities: []isobar.ServiceLocality{{Locality: where, MaxRate: 10}, {Locality: elsewhere}}},
				Lookups: [][]config.DNSLookup{{{Name: "a.example", Port: 80, Family: "auto"}}, {{Name: "gone.example", SRV: true, Family: "auto"}}},
			}},
		}
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }
		runWith(t, cfg, server.Options{Store: kept, DialDNS: dial}, func(w *world) {
			<-time.After(10 * time.Second)
			var object isobar.Object
			w.read("127.0.0.1", "/v1/services/named", &object)
			if s := object.Service; object.Owner != isobar.OwnerDNS || len(s.Localities) != 1 || s.Localities[0].MaxRate != 10 || s.Localities[0].Endpoints[0].Address != "10.9.0.1:80" {
				t.Errorf("in force is %+v", object)
			}
			var state struct {
				Services []struct {
					Name    string
					Lookups []struct{ Name, State, Failure string }
				}
			}
			w.read("127.0.0.1", "/v1/discovery/dns", &state)
			if l := state.Services[0].Lookups; l[0].State != "current" || l[1].State != "waiting" || !strings.Contains(l[1].Failure, "SRV gone.example. of 10.0.0.2:53: the server answers REFUSED") {
				t.Errorf("%+v", state)
			}
			var status admin.Status
			w.read("127.0.0.1", "/v1/status", &status)
			want := "named: no endpoints in " + elsewhere.String() + " yet: gone.example has not been resolved: "
			if !slices.ContainsFunc(status.Attention, func(a admin.Attention) bool {
				return a.Code == admin.DiscoveryWaiting && a.Service == "named" && a.Locality == elsewhere && strings.HasPrefix(a.Text, want)
			}) {
				t.Errorf("status %+v, want %q", status.Attention, want)
			}
			if code := w.get("/v1/discovery/xds"); code != http.StatusNotFound {
				t.Errorf("there is no other control plane, and its state is answered with %d", code)
			}
		})
	})
}
