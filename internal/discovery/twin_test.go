package discovery_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/store"
)

// twin is the registry as two maps of rates.
type twin struct{ api, file map[string]float64 }

func (w *twin) put(name string, rate float64) bool {
	_, ours := w.api[name]
	_, theirs := w.file[name]
	if theirs && !ours {
		return false
	}
	w.api[name] = rate
	return true
}

func (w *twin) String() string {
	all := maps.Clone(w.file)
	maps.Copy(all, w.api)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		owner := isobar.OwnerFile
		if _, ours := w.api[name]; ours {
			owner = isobar.OwnerAPI
		}
		out = append(out, fmt.Sprintf("%s=%s:%g", name, owner, all[name]))
	}
	return strings.Join(out, " ")
}

func shown(r *discovery.Registry) string {
	var out []string
	for _, o := range r.List() {
		out = append(out, fmt.Sprintf("%s=%s:%g", o.Service.Name, o.Owner, o.Service.Localities[1].MaxRate))
	}
	return strings.Join(out, " ")
}

// Whatever order changes and restarts come in, the registry holds what two
// maps would hold, and revisions never go back.
func TestRegistryAgainstItsTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		memory := store.NewMemory()
		r := open(t, memory)
		w := &twin{api: map[string]float64{}, file: map[string]float64{}}
		var last uint64
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		rate := rapid.Float64Range(1, 3)
		some := rapid.MapOfN(name, rate, 0, 3)
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				n, x := name.Draw(rt, "name"), rate.Draw(rt, "rate")
				_, _, err := r.Put(n, svc(n, x), 0)
				if done := w.put(n, x); done != (err == nil) {
					rt.Fatalf("put %s: %v, the twin %v", n, err, done)
				}
			case 1:
				n := name.Draw(rt, "name")
				_, err := r.Delete(n, 0)
				if _, had := w.api[n]; had != (err == nil) {
					rt.Fatalf("delete %s: %v, the twin %v", n, err, had)
				}
				delete(w.api, n)
			case 2:
				w.file = some.Draw(rt, "file")
				if _, err := r.SetFile(services(w.file), nil); err != nil {
					rt.Fatal(err)
				}
			case 3:
				all := some.Draw(rt, "all")
				_, err := r.PutAll(services(all))
				fits := true
				for n := range all {
					_, ours := w.api[n]
					_, theirs := w.file[n]
					fits = fits && (ours || !theirs)
				}
				if fits != (err == nil) {
					rt.Fatalf("put all: %v, the twin %v", err, fits)
				}
				if fits {
					w.api = all
				}
			case 4:
				r = open(t, memory)
				if _, err := r.SetFile(services(w.file), nil); err != nil {
					rt.Fatal(err)
				}
			}
			topology, _ := r.State()
			if topology.Revision < last {
				rt.Fatalf("revision %d after %d", topology.Revision, last)
			}
			last = topology.Revision
			if shown(r) != w.String() {
				rt.Fatalf("have %s, want %s", shown(r), w)
			}
		}
	})
}

func services(rates map[string]float64) []isobar.Service {
	var out []isobar.Service
	for _, name := range slices.Sorted(maps.Keys(rates)) {
		out = append(out, svc(name, rates[name]))
	}
	return out
}
