package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/store"
)

func TestTooManyServices(t *testing.T) {
	r := open(t, store.NewMemory())
	services := make([]isobar.Service, isobar.MaxServices+1)
	for i := range services {
		services[i] = isobar.Service{Name: fmt.Sprint("s", i)}
	}
	if _, err := r.SetFile(services, nil); !errors.Is(err, isobar.ErrInvalid) {
		t.Errorf("SetFile: %v", err)
	}
	setFile(t, r, services[1:]...)
	if _, _, err := r.Put("a", svc("a", 1), 0); !errors.Is(err, isobar.ErrInvalid) {
		t.Errorf("Put: %v", err)
	}
}

// flaky is a store that fails, before, after or while it syncs what it has written.
type flaky struct {
	*store.Memory

	before, after, syncing bool
	sync                   func() // called while it syncs; nil = nothing is
}

var errDisk = errors.New("disk full")

func (f *flaky) CompareAndSwapNotify(ctx context.Context, key string, revision uint64, data []byte, written func()) (uint64, error) {
	if f.before {
		return 0, errDisk
	}
	if v, err := f.Get(ctx, key); err == nil && v.Revision != revision {
		return 0, isobar.ErrStale
	}
	written()
	if f.sync != nil {
		f.sync()
	}
	if f.syncing {
		return 0, errDisk
	}
	next, err := f.CompareAndSwap(ctx, key, revision, data)
	if f.after && err == nil {
		return 0, errDisk
	}
	return next, err
}

// TestChangeIsInForceWhileItIsSynced: planners have a change before the disk does, and
// readers of the API once the disk has it.
func TestChangeIsInForceWhileItIsSynced(t *testing.T) {
	disk := &flaky{Memory: store.NewMemory()}
	r := open(t, disk)
	put(t, r, svc("a", 1))
	<-r.Changed()
	synced := 0
	disk.sync = func() {
		synced++
		select {
		case <-r.Changed():
		default:
			t.Error("planners are not told while the disk is synced")
		}
		if topology, _ := r.State(); topology.Services[0].Localities[1].MaxRate != 2 {
			t.Error("planners have no change while the disk is synced")
		}
		if o, err := r.Get("a"); err != nil || o.Service.Localities[1].MaxRate != 1 {
			t.Errorf("readers of the API have a change that may be lost: %+v, %v", o, err)
		}
	}
	if o := put(t, r, svc("a", 2)); o.Service.Localities[1].MaxRate != 2 || synced != 1 {
		t.Errorf("put %+v after %d syncs", o, synced)
	}
	select {
	case <-r.Changed():
		t.Error("planners are told twice of one change")
	default:
	}
}

// TestSyncThatFails: a change whose sync fails is taken back, with a newer revision, and
// while saves fail no other change is in force before it is saved.
func TestSyncThatFails(t *testing.T) {
	disk := &flaky{Memory: store.NewMemory()}
	r := open(t, disk)
	etag := put(t, r, svc("a", 1)).Revision
	before, _ := r.State()
	var shown []uint64 // revisions that planners had while the disk was synced
	disk.syncing, disk.sync = true, func() {
		now, _ := r.State()
		shown = append(shown, now.Revision)
	}
	for range 2 {
		if _, _, err := r.Put("a", svc("a", 2), 0); !errors.Is(err, errDisk) {
			t.Fatalf("Put: %v", err)
		}
	}
	after, _ := r.State()
	if len(shown) != 2 || shown[0] != before.Revision+1 || after.Revision <= shown[0] || shown[1] != after.Revision {
		t.Errorf("revision %d, then %v while the sync failed, then %d", before.Revision, shown, after.Revision)
	}
	if o, err := r.Get("a"); err != nil || o.Service.Localities[1].MaxRate != 1 || o.Revision != etag {
		t.Errorf("what could not be saved is in force: %+v, %v", o, err)
	}
	if after.Services[0].Localities[1].MaxRate != 1 {
		t.Error("planners have what could not be saved")
	}
	disk.syncing = false
	if o := put(t, r, svc("a", 3)); o.Revision <= after.Revision {
		t.Errorf("object revision %d after topology %d", o.Revision, after.Revision)
	}
	disk.sync = nil
	last, _ := r.State()
	reopened := open(t, disk)
	if topology, _ := reopened.State(); topology.Revision <= last.Revision || topology.Services[0].Localities[1].MaxRate != 3 {
		t.Errorf("after a restart: revision %d after %d, %+v", topology.Revision, last.Revision, topology.Services[0])
	}
}

func TestStoreThatFails(t *testing.T) {
	for _, test := range []flaky{{before: true}, {after: true}} {
		t.Run(fmt.Sprintf("before %v", test.before), func(t *testing.T) {
			disk := &flaky{Memory: store.NewMemory()}
			r := open(t, disk)
			put(t, r, svc("a", 1))
			disk.before, disk.after = test.before, test.after
			if _, _, err := r.Put("a", svc("a", 2), 0); !errors.Is(err, errDisk) {
				t.Fatalf("Put: %v", err)
			}
			if o, err := r.Get("a"); err != nil || o.Service.Localities[1].MaxRate != 1 {
				t.Error("what could not be saved is in force")
			}
			before, _ := r.State()
			setFile(t, r, svc("f", 1))
			if after, _ := r.State(); names(r) != "a=api f=file" || after.Revision <= before.Revision {
				t.Errorf("the file waits for the disk: %s", names(r))
			}
			disk.before, disk.after = false, false
			put(t, r, svc("a", 3))
			last, _ := r.State()
			reopened := open(t, disk)
			if topology, _ := reopened.State(); topology.Revision <= last.Revision {
				t.Errorf("revision %d after %d", topology.Revision, last.Revision)
			}
			if o, err := reopened.Get("a"); err != nil || o.Service.Localities[1].MaxRate != 3 {
				t.Errorf("what was saved last is lost: %+v, %v", o, err)
			}
		})
	}
}

func TestOpenRefusesWhatItCannotRead(t *testing.T) {
	for name, data := range map[string]string{
		"not JSON":     "{",
		"newer format": `{"format": 2}`,
		"bad mode":     `{"format": 1, "objects": [{"service": {"name": "a", "mode": "fast"}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			memory := store.NewMemory()
			if _, err := memory.CompareAndSwap(t.Context(), "sources", 0, []byte(data)); err != nil {
				t.Fatal(err)
			}
			if _, err := discovery.Open(t.Context(), discovery.Options{Store: memory}); err == nil || !strings.Contains(err.Error(), "saved services") {
				t.Errorf("got %v", err)
			}
		})
	}
	disk := &flaky{Memory: store.NewMemory()}
	put(t, open(t, disk), svc("a", 1))
	disk.before = true
	if r := open(t, disk); names(r) != "a=api" {
		t.Errorf("from a store that can't be written: %s", names(r))
	} else if _, _, err := r.Put("a", svc("a", 2), 0); !errors.Is(err, errDisk) {
		t.Errorf("written to a store that can't be: %v", err)
	}
}

// TestOpenReadsFormerNames: what an earlier version saved counts under its new
// names.
func TestOpenReadsFormerNames(t *testing.T) {
	const data = `{"format": 1, "objects": [{"service": {"name": "a", "localities": [
		{"locality": "us/a", "max_rate": 9, "background": 5, "scaler": 0.5}, {"locality": "us/b", "unmanaged_load": 3, "background": 4}]}}]}`
	memory := store.NewMemory()
	if _, err := memory.CompareAndSwap(t.Context(), "sources", 0, []byte(data)); err != nil {
		t.Fatal(err)
	}
	o, err := open(t, memory).Get("a")
	if err != nil {
		t.Fatal(err)
	}
	l := o.Service.Localities
	if l[0].UnmanagedLoad != 5 || l[0].CapacityScaler != 0.5 || l[1].UnmanagedLoad != 3 {
		t.Errorf("read as %+v", l)
	}
}

func TestWritersAtOnce(t *testing.T) {
	r := open(t, store.NewMemory())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 10 {
				if _, _, err := r.Put(fmt.Sprint("s", i), svc(fmt.Sprint("s", i), float64(j+1)), 0); err != nil {
					t.Error(err)
				}
				topology, _ := r.State()
				if s, ok := topology.Service(fmt.Sprint("s", i)); !ok || s.Localities[1].MaxRate != float64(j+1) {
					t.Error("what was put is not in the topology")
				}
			}
		})
	}
	wg.Wait()
	if got := names(r); got != "s0=api s1=api s2=api s3=api" {
		t.Errorf("have %s", got)
	}
}
