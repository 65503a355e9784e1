package interop

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
)

// crowd is a service with many endpoints that are all probed at one address.
func crowd(t *testing.T, name string, endpoints int, at string) checked {
	t.Helper()
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	out := checked{Name: name, Checks: []map[string]any{{"tcp": map[string]any{}, "interval": "5s", "healthy_threshold": 1}}}
	l := checkedLocality{Locality: "us/a"}
	for i := range endpoints {
		l.Endpoints = append(l.Endpoints, checkedEndpoint{
			Address: fmt.Sprintf("127.1.%d.%d:%d", i/250, 1+i%250, 1000), Check: map[string]any{"address": host, "port": n},
		})
	}
	out.Localities = []checkedLocality{l}
	return out
}

// healthyOf reports how many endpoints of a service are not healthy by verdict.
func (s *isobar) healthyOf(service string, want int) error {
	list, err := s.verdicts(service)
	if err != nil {
		return err
	}
	n, why := 0, ""
	for _, v := range list {
		if v.Status.String() == "healthy" {
			n++
		} else {
			why = v.Why
		}
	}
	if n != want {
		return fmt.Errorf("%d healthy endpoints of %d, want %d: %s", n, len(list), want, why)
	}
	return nil
}

// An Envoy that says nothing of its limits is given 500 endpoints; three of
// them probe what they can, and what is too much is named.
func TestEnvoyIsGivenWhatItBears(t *testing.T) {
	t.Parallel()
	at := startEcho(t)
	web := crowd(t, "web", 520, at)
	web.Checkers = byOne
	s := startIsobar(t, servicesText(t, web))
	p := startEnvoyWith(t, envoy.Config{
		Path: envoyBinary(t, envoy.Newest), Bootstrap: []byte(checkerBootstrap("one", "us/a", s.xds, 0)), OpenFiles: 700,
	})
	await(t, "500 endpoints for an Envoy", func() error { p.alive(t); return s.designated("one", 500) })
	await(t, "verdicts", func() error { p.alive(t); return s.healthyOf("web", 500) })
	await(t, "what is lacking", func() error {
		text, err := s.attention()
		if err == nil && !strings.Contains(text, "web: no checker probes 20 endpoints: checkers are at their limit of 500 endpoints") {
			err = fmt.Errorf("attention: %s", text)
		}
		return err
	})
	startEnvoyWith(t, envoy.Config{
		Path: envoyBinary(t, envoy.Newest), Bootstrap: []byte(checkerBootstrap("two", "us/b", s.xds, 1000)), OpenFiles: 2000,
	})
	await(t, "verdicts by two", func() error { p.alive(t); return s.healthyOf("web", 520) })
}

// An Envoy that ends as soon as it probes, for it may not open enough files,
// costs the other services nothing, and stays once nothing that it can't bear
// is given to it.
func TestEnvoyThatEndsIsSpared(t *testing.T) {
	t.Parallel()
	at := startEcho(t)
	large, small := crowd(t, "large", 300, at), crowd(t, "small", 10, at)
	for i := range small.Localities[0].Endpoints {
		e := &small.Localities[0].Endpoints[i]
		e.Address = strings.Replace(e.Address, "127.1.", "127.2.", 1)
	}
	s := startIsobar(t, servicesText(t, large, small))
	var sound []*proxy
	for _, zone := range []string{"b", "c"} {
		sound = append(sound, startChecker(t, envoy.Newest, "sound-"+zone, "us/"+zone, s))
	}
	await(t, "verdicts by the sound ones", func() error { return s.healthyOf("large", 300) })
	wrong := s.watch("large", "small")
	ends := 0
	for ; ends < 12; ends++ {
		if livesWith(t, envoy.Config{
			Path: envoyBinary(t, envoy.Newest), Bootstrap: []byte(checkerBootstrap("weak", "us/a", s.xds, 1000)), OpenFiles: 100,
		}) {
			break
		}
	}
	if ends < 3 || ends > 8 {
		t.Errorf("the weak Envoy ended %d times, want 3 times and few more", ends)
	}
	text, err := s.attention()
	if err != nil || !strings.Contains(text, "large: checkers disconnected 3 times after Isobar assigned this service to them (weak)") {
		t.Errorf("attention: %v %s", err, text)
	}
	for _, p := range sound {
		p.alive(t)
	}
	if list := wrong(); len(list) > 0 {
		t.Errorf("a healthy endpoint went down: %s", list[0])
	}
}

// livesWith runs an Envoy for a while, and reports whether it ended by itself.
func livesWith(t *testing.T, c envoy.Config) bool {
	t.Helper()
	c.Dir = t.TempDir()
	p, err := envoy.Start(t.Context(), c)
	if err != nil {
		return false // before it could be asked
	}
	defer p.Kill()
	select {
	case <-p.Exited():
		return false
	case <-time.After(8 * time.Second):
		return true
	}
}
