package xdsclient_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/xdsclient"
)

// sleep lets virtual time pass.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

// TestEmptyIsHeld: a service that becomes empty keeps its endpoints for a
// while, and is empty then; with endpoints listed in time, nothing was.
func TestEmptyIsHeld(t *testing.T) {
	inWorld(t, configuration("a", "b", "c"), func(w *world) {
		t := w.t
		u, _ := w.stream()
		u.accepted("1", assignment("a", "10.0.0.1"), assignment("b", "10.0.0.2"), assignment("c"))
		if w.endpoints("c") != nil || w.status("c").State != xdsclient.Empty {
			t.Errorf("c, which never had endpoints, is %+v", w.status("c"))
		}
		u.accepted("2", assignment("a"))
		if s := w.status("a"); s.State != xdsclient.Held || s.EmptySince.IsZero() {
			t.Errorf("a is %+v", s)
		}
		w.sleep(4 * time.Minute)
		u.accepted("3", assignment("a"), assignment("b", "10.0.0.3")) // saying it again does not put it off
		w.want("a", in("us/a", "10.0.0.1:80"))
		w.sleep(time.Minute)
		w.want("a", in("us/a"))
		if s := w.status("a"); s.State != xdsclient.Empty {
			t.Errorf("a is %+v", s)
		}
		u.accepted("4", assignment("a", "10.0.0.4"))
		w.want("a", in("us/a", "10.0.0.4:80"))
		u.accepted("5", assignment("a"))
		w.sleep(time.Minute)
		u.accepted("6", assignment("a", "10.0.0.5"))
		w.sleep(time.Hour)
		w.want("a", in("us/a", "10.0.0.5:80"))
	})
}

// TestManyEmptyAtOnce: that is a fault of the other control plane, unless an
// operator says otherwise.
func TestManyEmptyAtOnce(t *testing.T) {
	cfg := configuration("a", "b", "c")
	inWorld(t, cfg, func(w *world) {
		u, _ := w.stream()
		u.accepted("1", assignment("a", "10.0.0.1"), assignment("b", "10.0.0.2"), assignment("c", "10.0.0.3"))
		u.accepted("2", assignment("a"), assignment("b"))
		w.sleep(24 * time.Hour)
		w.want("a", in("us/a", "10.0.0.1:80"))
		w.want("b", in("us/a", "10.0.0.2:80"))
		at := *cfg
		at.EmptyHold = 0
		w.configure(&at)
		w.want("a", in("us/a"))
		w.want("b", in("us/a"))
		w.want("c", in("us/a", "10.0.0.3:80"))
		u.accepted("3", assignment("c"))
		w.want("c", in("us/a"))
	})
}

// TestEmptyHasToBeSaidAgain: what a lost stream said last does not ripen.
func TestEmptyHasToBeSaidAgain(t *testing.T) {
	inWorld(t, configuration("a"), func(w *world) {
		u, _ := w.stream()
		u.accepted("1", assignment("a", "10.0.0.1"))
		u.accepted("2", assignment("a"))
		u.end <- status.Error(codes.Unavailable, "")
		u, _ = w.stream()
		w.sleep(time.Hour)
		w.want("a", in("us/a", "10.0.0.1:80"))
		u.accepted("3", assignment("a"))
		w.sleep(5*time.Minute - time.Second)
		w.want("a", in("us/a", "10.0.0.1:80"))
		w.sleep(time.Second)
		w.want("a", in("us/a"))
	})
}

// TestReload: a changed list of services changes the subscription on the same
// stream and touches nothing else; another server takes over from the first.
func TestReload(t *testing.T) {
	inWorld(t, configuration("a", "b"), func(w *world) {
		t := w.t
		u, _ := w.stream()
		u.accepted("1", assignment("a", "10.0.0.1"), assignment("b", "10.0.0.2"))
		w.configure(configuration("a", "c"))
		r := u.request()
		if got := r.GetResourceNames(); len(got) != 2 || got[1] != "eds-c" || r.GetVersionInfo() != "1" || r.GetResponseNonce() != "nonce of 1" {
			t.Errorf("asked by %v", r)
		}
		w.want("a", in("us/a", "10.0.0.1:80"))
		if w.endpoints("b") != nil {
			t.Error("b is still in force")
		}
		u.accepted("2", assignment("c", "10.0.0.3"))

		renamed := configuration("a", "c")
		renamed.Services[0].EDSName = "eds-a2"
		w.configure(renamed)
		u.request()
		w.want("a", in("us/a", "10.0.0.1:80")) // until the other name is answered
		if got := w.status("a").State; got != xdsclient.Kept {
			t.Errorf("a is %s", got)
		}

		other := configuration("a", "c")
		other.Server = "another:1"
		w.configure(other)
		u, first := w.stream()
		if first.GetVersionInfo() != "" || len(first.GetResourceNames()) != 2 {
			t.Errorf("the other server is asked by %v", first)
		}
		w.want("c", in("us/a", "10.0.0.3:80"))
		u.accepted("9", assignment("c", "10.0.0.4"))
		w.want("c", in("us/a", "10.0.0.4:80"))

		w.configure(nil)
		if w.endpoints("a") != nil || w.endpoints("c") != nil {
			t.Error("without a source, its services are still in force")
		}
		if _, ok := w.client.Status(); ok {
			t.Error("there is a status without a source")
		}
		w.configure(configuration("a"))
		u, _ = w.stream()
		u.accepted("1", assignment("a", "10.0.0.7"))
		w.want("a", in("us/a", "10.0.0.7:80"))
	})
}

// TestReloadOfWhatAnswersMean: under the same names a server does not answer again,
// so what changes the meaning of its answers has it asked again.
func TestReloadOfWhatAnswersMean(t *testing.T) {
	inWorld(t, configuration("a", "b"), func(w *world) {
		t := w.t
		u, _ := w.stream()
		u.accepted("1", assignment("a", "10.0.0.1"), assignment("b", "10.0.0.2"))
		swapped := configuration("a", "b")
		swapped.Services[0].EDSName, swapped.Services[1].EDSName = "eds-b", "eds-a"
		w.configure(swapped)
		u, first := w.stream()
		if first.GetVersionInfo() != "" || len(first.GetResourceNames()) != 2 {
			t.Errorf("asked by %v", first)
		}
		u.accepted("1", assignment("a", "10.0.0.1"), assignment("b", "10.0.0.2"))
		w.want("a", in("us/a", "10.0.0.2:80"))
		w.want("b", in("us/a", "10.0.0.1:80"))
		moved := configuration("a", "b")
		moved.Services[0].EDSName, moved.Services[1].EDSName = "eds-b", "eds-a"
		moved.DefaultLocality = isobar.MustLocality("us/z")
		w.configure(moved)
		if _, first := w.stream(); first.GetVersionInfo() != "" {
			t.Errorf("asked by %v for another default locality", first)
		}
	})
}

// TestServiceMovesFromTheFile: it is never missing, and keeps the endpoints of
// the file until the other control plane lists some.
func TestServiceMovesFromTheFile(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.t
		w.configure(nil, isobar.Service{Name: "a", Localities: []isobar.ServiceLocality{
			{Locality: isobar.MustLocality("us/b"), MaxRate: 9, Endpoints: []isobar.Endpoint{{Address: "10.0.0.9:80"}}},
		}})
		w.configure(configuration("a"))
		w.want("a", in("us/b", "10.0.0.9:80"))
		if o, err := w.registry.Get("a"); err != nil || o.Owner != isobar.OwnerXDS || o.Service.Localities[0].MaxRate != 0 {
			t.Errorf("a is %+v, %v: capacity is that of the new configuration", o, err)
		}
		u, _ := w.stream()
		u.accepted("1", assignment("a", "10.0.0.1"))
		w.want("a", in("us/a", "10.0.0.1:80"))
	})
}

// TestWaitAnswered: who starts without knowledge waits for the first answers,
// but not for ever.
func TestWaitAnswered(t *testing.T) {
	inWorld(t, configuration("a", "b"), func(w *world) {
		t := w.t
		began := time.Now()
		w.client.WaitAnswered(t.Context(), 5*time.Second)
		if got := time.Since(began); got != 5*time.Second {
			t.Errorf("gave up after %v", got)
		}
		waited := make(chan time.Time)
		go func() {
			w.client.WaitAnswered(t.Context(), time.Hour)
			waited <- time.Now()
		}()
		u, _ := w.stream()
		u.accepted("1", assignment("a", "10.0.0.1"))
		w.sleep(time.Minute)
		u.accepted("2", assignment("b"))
		answered := time.Now()
		if got := <-waited; got.Sub(answered) != 0 {
			t.Errorf("waited %v too long", got.Sub(answered))
		}
		w.client.WaitAnswered(t.Context(), time.Hour)
	})
}
