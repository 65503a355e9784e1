package reload

import (
	"encoding/json"
	"math"
	"net/netip"
	"runtime/debug"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
)

func placed(name string) isobar.Service {
	at := isobar.Locality{Region: "us-east", Zone: "b"}
	return isobar.Service{Name: name, Localities: []isobar.ServiceLocality{
		{Locality: at, Endpoints: []isobar.Endpoint{{Address: netip.MustParseAddrPort("10.0.0.1:80").String()}}},
	}}
}

// The services of the file in force are those of the registry, not a second copy.
func TestServicesInForceAreThoseOfTheRegistry(t *testing.T) {
	c := configurationOf(t, &config.Live{})
	live := &config.Live{Services: []isobar.Service{placed("b"), placed("a")}}
	if err := c.configureSources(live, nil, func() { c.settings.live.Store(live) }); err != nil {
		t.Fatal(err)
	}
	c.share(map[string]*heldService{"b": {}})
	shared := c.settings.Current().Services
	if len(shared) != 2 || shared[0].Name != "b" || shared[1].Name != "a" {
		t.Fatalf("other services: %v", shared)
	}
	has := c.registry.Objects()
	if &shared[1].Localities[0] != &has[0].Service.Localities[0] {
		t.Error("a is kept twice")
	}
	if &shared[0].Localities[0] == &has[1].Service.Localities[0] {
		t.Error("b is held: what the file says of it is another thing than what is in force")
	}
}

func TestSharedServicesOfNone(t *testing.T) {
	for _, none := range [][]isobar.Service{nil, {}} {
		c := configurationOf(t, &config.Live{Services: none})
		c.share(nil)
		if got := c.settings.Current().Services; (got == nil) != (none == nil) {
			t.Errorf("%#v became %#v", none, got)
		}
	}
}

// What is kept is the JSON that earlier versions wrote, and read.
func TestEncodedAsJSON(t *testing.T) {
	for name, c := range map[string]Configured{
		"nothing":      {},
		"no services":  {Services: []isobar.Service{}},
		"one":          {Services: []isobar.Service{placed("a")}},
		"several":      {Services: []isobar.Service{placed("a"), placed("b<&>\u2028"), {Name: "c"}}, Listed: []string{"c"}},
		"all else":     {Services: []isobar.Service{placed("a")}, Pending: true, Removed: []SavedRemoval{{At: time.Unix(9, 0).UTC(), Services: []string{"x"}}}},
		"held as well": {Services: []isobar.Service{placed("a")}, Held: map[string]SavedHold{"a": {Rate: 1.5}}},
	} {
		want := c
		if want.Services == nil {
			want.Services = []isobar.Service{}
		}
		plain, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Encode(); err != nil || string(got) != string(plain) {
			t.Errorf("%s: got %s, %v; want %s", name, got, err, plain)
		}
	}
	bad := Configured{Services: []isobar.Service{{Name: "a", MaxShed: math.NaN()}}}
	if _, err := bad.Encode(); err == nil {
		t.Error("NaN was encoded")
	}
}

func TestLargeFilesAreTakenFrugally(t *testing.T) {
	for _, c := range []struct{ usual, bytes, want int }{
		{100, largeFile - 1, 100},
		{100, largeFile, frugalPercent},
		{400, largeFile, frugalPercent},
		{20, largeFile, 20},
		{-1, largeFile, -1}, // GOGC=off
	} {
		before := debug.SetGCPercent(c.usual)
		done := Frugally(c.bytes)
		during := debug.SetGCPercent(c.usual)
		debug.SetGCPercent(during)
		done()
		if after := debug.SetGCPercent(before); during != c.want || after != c.usual {
			t.Errorf("GOGC=%d, %d bytes: %d during the change, want %d; %d after it", c.usual, c.bytes, during, c.want, after)
		}
	}
}
