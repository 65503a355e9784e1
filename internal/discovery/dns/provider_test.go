package dns_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/dns"
)

// TestAnswersCountForTheirTTL: endpoints change when the answer has run out, not
// before, and the order of records changes nothing.
func TestAnswersCountForTheirTTL(t *testing.T) {
	cfg := configuration(svc("web", "us/a", host("web.example")))
	inWorld(t, cfg, []string{"web.example. 30 IN A 10.1.0.2", "web.example. 30 IN A 10.1.0.1"}, func(w *world) {
		w.has("web", "us/a: 10.1.0.1:80 10.1.0.2:80")
		before, _ := w.registry.State()
		w.zone.set(t, "web.example. 30 IN A 10.1.0.1", "web.example. 30 IN A 10.1.0.2")
		w.after(32 * time.Second)
		if now, _ := w.registry.State(); now != before {
			t.Error("another order of the records makes another topology")
		}
		if n := w.zone.questions("A web.example"); n != 2 {
			t.Errorf("%d questions in 32 s, want 2 at a TTL of 30 s", n)
		}
		w.zone.set(t, "web.example. 30 IN A 10.1.0.3")
		w.after(25*time.Second).has("web", "us/a: 10.1.0.1:80 10.1.0.2:80")
		w.after(10*time.Second).has("web", "us/a: 10.1.0.3:80")
		if o, err := w.registry.Get("web"); err != nil || o.Owner != isobar.OwnerDNS || o.Service.Localities[0].MaxRate != 100 {
			t.Errorf("%+v, %v: want the settings of the configuration", o, err)
		}
	})
}

// TestShortAndLongTTLs: no name is asked for more often than the floor says,
// and none less often than once an hour.
func TestShortAndLongTTLs(t *testing.T) {
	cfg := configuration(svc("web", "us/a", host("short.example"), host("long.example"), host("odd.example")))
	records := []string{"short.example. 0 IN A 10.1.0.1", "long.example. 604800 IN A 10.1.0.2", "odd.example. 4294967295 IN A 10.1.0.3"}
	cfg.MinTTL = time.Minute
	inWorld(t, cfg, records, func(w *world) {
		w.after(time.Hour + time.Second)
		if n := w.zone.questions("A short.example"); n < 58 || n > 61 {
			t.Errorf("%d questions in an hour at a TTL of 0, want one a minute", n)
		}
		if n := w.zone.questions("A odd.example"); n < 58 {
			t.Errorf("%d questions at a TTL with the highest bit, which is 0", n)
		}
		if n := w.zone.questions("A long.example"); n != 2 {
			t.Errorf("%d questions in an hour at a TTL of a week, want 2", n)
		}
	})
}

// TestSRVRecords: hosts, ports and weights come from the records of the first
// priority; a host with two addresses has its weight once.
func TestSRVRecords(t *testing.T) {
	cfg := configuration(svc("grpc", "us/a", srv("_grpc._tcp.example"), "us/b", host("b.example")))
	inWorld(t, cfg, []string{
		"_grpc._tcp.example. 60 IN SRV 10 30 8080 one.example.",
		"_grpc._tcp.example. 60 IN SRV 10 10 8081 two.example.",
		"_grpc._tcp.example. 60 IN SRV 20 10 8080 spare.example.",
		"one.example. 10 IN A 10.1.0.1", "one.example. 10 IN A 10.1.0.2", "two.example. 60 IN A 10.1.0.3", "spare.example. 60 IN A 10.1.0.9",
		"b.example. 60 IN A 10.2.0.1",
	}, func(w *world) {
		w.has("grpc", "us/a: 10.1.0.1:8080*37800 10.1.0.2:8080*37800 10.1.0.3:8081*25200; us/b: 10.2.0.1:80")
		if l := w.lookup("_grpc._tcp.example"); l.LeftOut != 1 || !strings.Contains(l.Reason, "spare.example. has priority 20") {
			t.Errorf("left out are %d, %q", l.LeftOut, l.Reason)
		}
		w.zone.set(t, "_grpc._tcp.example. 60 IN SRV 10 30 8080 one.example.", "_grpc._tcp.example. 60 IN SRV 10 0 8081 two.example.",
			"one.example. 60 IN A 10.1.0.1", "two.example. 60 IN A 10.1.0.3", "b.example. 60 IN A 10.2.0.1")
		w.after(11*time.Second).has("grpc", "us/a: 10.1.0.1:8080*30 10.1.0.3:8081*1; us/b: 10.2.0.1:80") // the TTL of one.example
		w.zone.set(t, "_grpc._tcp.example. 60 IN SRV 0 0 8080 one.example.", "one.example. 60 IN A 10.1.0.1", "b.example. 60 IN A 10.2.0.1")
		w.after(62*time.Second).has("grpc", "us/a: 10.1.0.1:8080; us/b: 10.2.0.1:80") // no weights at all
		w.zone.set(t, "_grpc._tcp.example. 60 IN SRV 0 0 0 .", "b.example. 60 IN A 10.2.0.1")
		w.after(62*time.Second).has("grpc", "us/a: 10.1.0.1:8080; us/b: 10.2.0.1:80")
		w.isState("_grpc._tcp.example", dns.Held)
		w.after(hold).has("grpc", "us/a:; us/b: 10.2.0.1:80")
	})
}

// TestHostOfAnSRVRecordFails: one host about which no server answers keeps its
// addresses, and the others follow.
func TestHostOfAnSRVRecordFails(t *testing.T) {
	cfg := configuration(svc("grpc", "us/a", srv("s.example")))
	both := []string{"s.example. 10 IN SRV 0 1 80 one.example.", "s.example. 10 IN SRV 0 1 80 two.example.", "one.example. 10 IN A 10.1.0.1", "two.example. 10 IN A 10.1.0.2"}
	inWorld(t, cfg, both, func(w *world) {
		w.has("grpc", "us/a: 10.1.0.1:80*1 10.1.0.2:80*1")
		w.zone.fail("one.example", miekg.RcodeServerFailure)
		w.zone.set(t, both[0], both[1], both[2], "two.example. 10 IN A 10.1.0.5")
		w.after(12*time.Second).has("grpc", "us/a: 10.1.0.1:80*1 10.1.0.5:80*1")
		if l := w.lookup("s.example"); l.State != dns.Kept || !strings.Contains(l.Failure, "A one.example. of 10.0.0.2:53: the server answers SERVFAIL") {
			t.Errorf("%+v", l)
		}
		w.zone.fail("one.example", miekg.RcodeSuccess)
		w.zone.set(t, both[0], both[1], both[3])
		w.after(time.Minute).has("grpc", "us/a: 10.1.0.2:80*1")
		if l := w.lookup("s.example"); l.State != dns.Current || l.LeftOut != 1 || l.Reason != "one.example. has no address" {
			t.Errorf("%+v", l)
		}
	})
}

// TestFamilies: IPv4 where there is some, else IPv6, unless one is configured;
// a question that fails does not change the family.
func TestFamilies(t *testing.T) {
	auto, six, four := host("both.example"), host("both.example"), host("six.example")
	six.Family, four.Family = dns.IPv6, dns.IPv4
	cfg := configuration(svc("s", "us/a", auto, "us/b", six, "us/c", host("six.example"), "us/d", four))
	inWorld(t, cfg, []string{"both.example. 10 IN A 10.1.0.1", "both.example. 10 IN AAAA fd00::1", "six.example. 10 IN AAAA fd00::2"}, func(w *world) {
		w.has("s", "us/a: 10.1.0.1:80; us/b: [fd00::1]:80; us/c: [fd00::2]:80")
		if l := w.lookup("six.example"); l.State != dns.Current {
			t.Errorf("%+v", l)
		}
		w.zone.fail("both.example", miekg.RcodeRefused)
		w.after(time.Minute).has("s", "us/a: 10.1.0.1:80; us/b: [fd00::1]:80; us/c: [fd00::2]:80")
	})
}

// TestAliases are followed, in one answer and over several; those that lead in
// a circle are a failure.
func TestAliases(t *testing.T) {
	cfg := configuration(svc("s", "us/a", host("www.example"), "us/b", host("loop.example")))
	inWorld(t, cfg, []string{
		"www.example. 300 IN CNAME web.example.", "web.example. 10 IN A 10.1.0.1",
		"loop.example. 10 IN CNAME pool.example.", "pool.example. 10 IN CNAME loop.example.",
	}, func(w *world) {
		w.has("s", "us/a: 10.1.0.1:80")
		if l := w.lookup("loop.example"); l.State != dns.Waiting || !strings.Contains(l.Failure, "more than 16 aliases lead from loop.example") {
			t.Errorf("%+v", l)
		}
		w.zone.answer = func(_, m *miekg.Msg) { m.Answer = m.Answer[:min(1, len(m.Answer))] } // as a server that is no resolver
		w.zone.set(t, "www.example. 10 IN CNAME other.example.", "other.example. 10 IN CNAME web.example.", "web.example. 10 IN A 10.1.0.2")
		w.after(12*time.Second).has("s", "us/a: 10.1.0.2:80")
	})
}

// TestEmptyIsHeld: a name that does not exist any more, or has no records, keeps
// its endpoints for a while, and gets them back at once when it has some.
func TestEmptyIsHeld(t *testing.T) {
	cfg := configuration(svc("s", "us/a", host("a.example"), "us/b", host("b.example")))
	both := []string{"a.example. 10 IN A 10.1.0.1", "b.example. 10 IN A 10.2.0.1"}
	inWorld(t, cfg, both, func(w *world) {
		w.zone.set(t, "a.example. 10 IN TXT empty", both[1])
		w.after(12*time.Second).has("s", "us/a: 10.1.0.1:80; us/b: 10.2.0.1:80")
		w.isState("a.example", dns.Held)
		if old := w.provider.Outdated(); len(old) != 1 || old[0].Service != "s" {
			t.Errorf("outdated are %v", old)
		}
		w.zone.set(t, both...)
		w.after(21*time.Second).isState("a.example", dns.Current)
		if old := w.provider.Outdated(); len(old) != 0 {
			t.Errorf("outdated are %v", old)
		}
		w.zone.set(t, both[1]) // NXDOMAIN
		w.after(hold-20*time.Second).has("s", "us/a: 10.1.0.1:80; us/b: 10.2.0.1:80")
		w.after(time.Minute).has("s", "us/a:; us/b: 10.2.0.1:80")
		w.isState("a.example", dns.Empty)
		w.zone.set(t, both...)
		w.after(32*time.Second).has("s", "us/a: 10.1.0.1:80; us/b: 10.2.0.1:80") // 30 s is how long a negative answer counts
	})
}

// TestMostServicesEmpty: while more than half of the services would lose all that
// they have, nothing of those is believed; one locality of another service is.
func TestMostServicesEmpty(t *testing.T) {
	cfg := configuration(svc("one", "us/a", host("a.example")), svc("two", "us/a", host("b.example")), svc("three", "us/a", host("c.example"), "us/b", host("d.example")))
	all := []string{"a.example. 10 IN A 10.1.0.1", "b.example. 10 IN A 10.1.0.2", "c.example. 10 IN A 10.1.0.3", "d.example. 10 IN A 10.1.0.4"}
	inWorld(t, cfg, all, func(w *world) {
		w.zone.set(t, all[3])
		w.after(3 * hold)
		w.has("one", "us/a: 10.1.0.1:80")
		w.has("two", "us/a: 10.1.0.2:80")
		w.has("three", "us/a:; us/b: 10.1.0.4:80")
		w.zone.set(t, all[0], all[2], all[3]) // one of three is empty now
		w.after(time.Minute)
		w.has("one", "us/a: 10.1.0.1:80")
		w.has("two", "us/a:")
	})
}

// TestNoHold believes everything at once.
func TestNoHold(t *testing.T) {
	cfg := configuration(svc("one", "us/a", host("a.example")), svc("two", "us/a", host("b.example")))
	cfg.EmptyHold = 0
	inWorld(t, cfg, []string{"a.example. 10 IN A 10.1.0.1", "b.example. 10 IN A 10.1.0.2"}, func(w *world) {
		w.zone.set(t)
		w.after(12 * time.Second)
		w.has("one", "us/a:")
		w.has("two", "us/a:")
	})
}

// TestServersFail: the next server is asked; where none answers, what was
// resolved last stays, and is told.
func TestServersFail(t *testing.T) {
	cfg := configuration(svc("s", "us/a", host("a.example")))
	inWorld(t, cfg, []string{"a.example. 10 IN A 10.1.0.1"}, func(w *world) {
		w.setDown(true, "10.0.0.2:53")
		w.zone.set(t, "a.example. 10 IN A 10.1.0.2")
		w.after(12*time.Second).has("s", "us/a: 10.1.0.2:80")
		w.asked()
		w.after(12 * time.Second)
		for _, address := range w.asked() { // the one that answered is asked first
			if address != "10.0.0.3:53" {
				t.Errorf("asked %s", address)
			}
		}
		w.setDown(true, "10.0.0.3:53")
		w.zone.set(t, "a.example. 10 IN A 10.1.0.3")
		w.after(time.Hour).has("s", "us/a: 10.1.0.2:80")
		l := w.lookup("a.example")
		if l.State != dns.Kept || !strings.Contains(l.Failure, "no route to host") {
			t.Errorf("%+v", l)
		}
		if old := w.provider.Outdated(); len(old) != 1 || time.Since(old[0].Since) < 50*time.Minute {
			t.Errorf("outdated are %v", old)
		}
		w.setDown(false, "10.0.0.2:53")
		w.after(31*time.Second).has("s", "us/a: 10.1.0.3:80")
		w.isState("a.example", dns.Current)
	})
}

// TestServersThatDoNotKnow: what is no answer to the question is a failure, not an
// empty answer.
func TestServersThatDoNotKnow(t *testing.T) {
	for name, c := range map[string]struct {
		change func(q, m *miekg.Msg)
		want   string
	}{
		"refused":  {func(_, m *miekg.Msg) { m.Answer, m.Rcode = nil, miekg.RcodeRefused }, "the server answers REFUSED"},
		"odd code": {func(_, m *miekg.Msg) { m.Answer, m.Rcode = nil, 14 }, "the server answers code 14"},
		"referral": {func(_, m *miekg.Msg) {
			m.Answer, m.Ns = nil, []miekg.RR{&miekg.NS{Hdr: miekg.RR_Header{Name: "example.", Rrtype: miekg.TypeNS, Class: miekg.ClassINET}, Ns: "ns.example."}}
		}, "the server refers to other servers"},
		"other question": {func(_, m *miekg.Msg) { m.Question[0].Name = "b.example." }, "the response is to another query"},
		"no question":    {func(_, m *miekg.Msg) { m.Question = nil }, "the response is to another query"},
		"a question":     {func(_, m *miekg.Msg) { m.Response = false }, "the message is not a response"},
		"cut off":        {func(_, m *miekg.Msg) { m.Truncated = true }, "the answer is cut off over TCP, too"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, configuration(svc("s", "us/a", host("a.example"))), []string{"a.example. 10 IN A 10.1.0.1"}, func(w *world) {
				w.zone.mu.Lock()
				w.zone.answer = c.change
				w.zone.mu.Unlock()
				w.after(time.Minute).has("s", "us/a: 10.1.0.1:80")
				if l := w.lookup("a.example"); l.State != dns.Kept || !strings.Contains(l.Failure, c.want) {
					t.Errorf("%+v, want %q", l, c.want)
				}
			})
		})
	}
}

// TestUnusableAddresses are left out and named.
func TestUnusableAddresses(t *testing.T) {
	cfg := configuration(svc("s", "us/a", host("a.example"), srv("s.example"), "us/b", host("b.example")))
	inWorld(t, cfg, []string{
		"a.example. 10 IN A 0.0.0.0", "a.example. 10 IN A 224.0.0.1", "a.example. 10 IN A 10.1.0.1", "b.example. 10 IN A 10.1.0.1", "b.example. 10 IN A 10.1.0.2",
		"s.example. 10 IN SRV 0 1 0 b.example.",
	}, func(w *world) {
		w.has("s", "us/a: 10.1.0.1:80; us/b: 10.1.0.2:80")
		if l := w.lookup("a.example"); l.LeftOut != 2 || !strings.Contains(l.Reason, "0.0.0.0 of a.example is no address") {
			t.Errorf("%+v", l)
		}
		if l := w.lookup("s.example"); l.State != dns.Empty || l.LeftOut != 2 || !strings.Contains(l.Reason, "b.example. has port 0") {
			t.Errorf("%+v", l)
		}
		st, _ := w.provider.Status()
		if s := st.Services[0]; s.LeftOut != 1 || s.Endpoints != 2 || !strings.Contains(s.Reason, "10.1.0.1:80 of b.example belongs to another name") {
			t.Errorf("%+v", s)
		}
	})
}

// TestRestart: what was resolved last is in force before any server answers.
func TestRestart(t *testing.T) {
	cfg := configuration(svc("s", "us/a", host("a.example"), "us/b", srv("b.example")))
	inWorld(t, cfg, []string{"a.example. 10 IN A 10.1.0.1", "b.example. 10 IN SRV 0 7 8080 c.example.", "c.example. 10 IN A 10.2.0.1"}, func(w *world) {
		w.after(time.Second)
		w.stop()
		w.setDown(true, cfg.Servers...)
		w.start(cfg)
		w.has("s", "us/a: 10.1.0.1:80; us/b: 10.2.0.1:8080*7")
		w.provider.WaitAnswered(t.Context(), 0) // there is nothing to wait for
		w.isState("a.example", dns.Kept)
		if old := w.provider.Outdated(); len(old) != 1 {
			t.Errorf("outdated are %v", old)
		}
		w.setDown(false, cfg.Servers...)
		w.after(31*time.Second).isState("a.example", dns.Current)
		if old := w.provider.Outdated(); len(old) != 0 {
			t.Errorf("outdated are %v", old)
		}
	})
}

// TestNothingIsKnownYet: a service of which no name is resolved is awaited, and
// not handed over as empty.
func TestNothingIsKnownYet(t *testing.T) {
	cfg := configuration(svc("s", "us/a", host("a.example"), "us/b", host("b.example")))
	inWorld(t, cfg, nil, func(w *world) {
		w.after(2*hold).has("s", "none")
		w.isState("a.example", dns.Empty)
		top, _ := w.registry.State()
		if len(top.Awaited) != 1 {
			t.Errorf("awaited are %v", top.Awaited)
		}
		w.zone.set(t, "b.example. 10 IN A 10.2.0.1")
		w.after(31*time.Second).has("s", "us/b: 10.2.0.1:80")
	})
}

// TestWaitAnswered waits for the first answers and no longer.
func TestWaitAnswered(t *testing.T) {
	cfg := configuration(svc("s", "us/a", host("a.example"), "us/b", host("b.example")))
	inWorld(t, cfg, []string{"a.example. 10 IN A 10.1.0.1"}, func(w *world) {
		w.configure(configuration(svc("s", "us/a", host("c.example"))))
		began := time.Now()
		waited := make(chan time.Duration)
		go func() {
			w.provider.WaitAnswered(t.Context(), time.Hour)
			waited <- time.Since(began)
		}()
		if d := <-waited; d > time.Second {
			t.Errorf("waited %v", d)
		}
		w.stop()
		w.setDown(true, cfg.Servers...)
		w.kept = newMemory(t)
		w.start(cfg)
		w.setDown(false, cfg.Servers...)
		w.provider.WaitAnswered(t.Context(), time.Hour) // both were asked in vain once
	})
}

// TestAFirstLocalityWaitsForTheOthers: a service is not handed over with the one
// locality that answers first, to which all traffic would go.
func TestAFirstLocalityWaitsForTheOthers(t *testing.T) {
	records := []string{"a.example. 10 IN A 10.1.0.1", "b.example. 10 IN A 10.2.0.1"}
	inWorld(t, nil, records, func(w *world) {
		w.zone.mu.Lock()
		w.zone.slow = "b.example."
		w.zone.mu.Unlock()
		w.configure(configuration(svc("s", "us/a", host("a.example"), "us/b", host("b.example"))))
		w.after(500*time.Millisecond).has("s", "none")
		w.after(time.Second).has("s", "us/a: 10.1.0.1:80; us/b: 10.2.0.1:80")
	})
}

// TestReconfigured: what is known of names stays, what is new is asked for at
// once, and a service that comes from the file begins with its endpoints.
func TestReconfigured(t *testing.T) {
	cfg := configuration(svc("s", "us/a", host("a.example")))
	inWorld(t, cfg, []string{"a.example. 600 IN A 10.1.0.1", "b.example. 600 IN A 10.2.0.1", "m.example. 600 IN A 10.3.0.2"}, func(w *world) {
		w.configure(configuration(svc("s", "us/a", host("a.example"), "us/b", host("b.example")), svc("twin", "us/a", host("a.example"))))
		w.has("s", "us/a: 10.1.0.1:80")
		w.has("twin", "us/a: 10.1.0.1:80")
		synctest.Wait()
		w.has("s", "us/a: 10.1.0.1:80; us/b: 10.2.0.1:80")
		if n := w.zone.questions("A a.example"); n != 1 {
			t.Errorf("asked for a.example %d times: two services and two configurations share it", n)
		}
		file := isobar.Service{Name: "m", Localities: []isobar.ServiceLocality{{Locality: locality("us/a"), Endpoints: []isobar.Endpoint{{Address: "10.3.0.1:80", MaxRate: 7}}}}}
		w.configure(cfg, file)
		w.setDown(true, cfg.Servers...)
		next := configuration(cfg.Services[0], svc("m", "us/a", host("m.example")))
		w.configure(next)
		w.after(time.Minute).has("m", "us/a: 10.3.0.1:80")
		w.isState("m.example", dns.Kept)
		w.setDown(false, cfg.Servers...)
		w.after(31*time.Second).has("m", "us/a: 10.3.0.2:80")
		w.configure(configuration(cfg.Services[0], svc("m", "us/a", host("new.example")))) // another name: its endpoints stay until that is answered for
		w.has("m", "us/a: 10.3.0.2:80")
		w.after(time.Minute).has("m", "us/a: 10.3.0.2:80")
		w.isState("new.example", dns.Held)
		other := *cfg
		other.Servers = cfg.Servers[:1]
		w.configure(&other) // other servers may say something else
		synctest.Wait()
		if n := w.zone.questions("A a.example"); n < 2 {
			t.Error("other servers are not asked at once")
		}
		w.configure(nil)
		w.has("s", "none")
		if _, ok := w.provider.Status(); ok {
			t.Error("there is a status without a configuration")
		}
		w.after(time.Hour)
	})
}

// TestRefusedServiceAndReloads: a service that the registry refuses keeps what it
// had, refuses no other configuration, and is tried again with one.
func TestRefusedServiceAndReloads(t *testing.T) {
	cfg := configuration(svc("s", "us/a", host("a.example")), svc("new", "us/a", host("b.example")))
	inWorld(t, configuration(cfg.Services[0]), []string{"a.example. 10 IN A 10.1.0.1", "b.example. 10 IN A 10.1.0.9", "c.example. 10 IN A 10.1.0.3"}, func(w *world) {
		w.has("s", "us/a: 10.1.0.1:80")
		w.setRefused("10.1.0.9:80")
		w.zone.set(t, "a.example. 600 IN A 10.1.0.9", "b.example. 600 IN A 10.1.0.9", "c.example. 600 IN A 10.1.0.3")
		w.configure(cfg)
		w.after(11*time.Second).has("s", "us/a: 10.1.0.1:80")
		w.has("new", "none")
		st, _ := w.provider.Status()
		for _, s := range st.Services {
			if !strings.Contains(s.Refused, "has 10.1.0.9:80") {
				t.Errorf("%s: %+v", s.Name, s)
			}
		}
		w.configure(configuration(append(cfg.Services, svc("third", "us/a", host("c.example")))...)) // it fails the test where it is refused
		w.has("s", "us/a: 10.1.0.1:80")
		if top, _ := w.registry.State(); len(top.Awaited) != 2 {
			t.Errorf("awaited are %v, want new and third", top.Awaited)
		}
		w.after(time.Second).has("third", "us/a: 10.1.0.3:80")
		w.setRefused("")
		w.configure(cfg)
		synctest.Wait()
		w.has("s", "us/a: 10.1.0.9:80")
		w.has("new", "us/a: 10.1.0.9:80")
	})
}

// TestPreview hands over what Configure would, and changes nothing.
func TestPreview(t *testing.T) {
	cfg := configuration(svc("s", "us/a", host("a.example")))
	inWorld(t, cfg, []string{"a.example. 600 IN A 10.1.0.1"}, func(w *world) {
		listed, unknown := w.provider.Preview(configuration(cfg.Services[0], svc("new", "us/a", host("b.example"))))
		if len(listed) != 1 || listed[0].Name != "s" || len(unknown) != 1 || unknown[0].Name != "new" {
			t.Errorf("listed %v, unknown %v", listed, unknown)
		}
		w.after(time.Minute)
		if n := w.zone.questions("A b.example"); n != 0 {
			t.Error("a preview asks")
		}
	})
}

// TestMetrics count questions and names.
func TestMetrics(t *testing.T) {
	cfg := configuration(svc("s", "us/a", host("a.example"), "us/b", host("b.example"), "us/c", host("c.example")))
	inWorld(t, cfg, []string{"a.example. 600 IN A 10.1.0.1", "c.example. 600 IN A 0.0.0.0"}, func(w *world) {
		want := `
# HELP isobar_discovery_dns_names Names to resolve, by state.
# TYPE isobar_discovery_dns_names gauge
isobar_discovery_dns_names{state="current"} 1
isobar_discovery_dns_names{state="empty"} 2
isobar_discovery_dns_names{state="held"} 0
isobar_discovery_dns_names{state="kept"} 0
isobar_discovery_dns_names{state="waiting"} 0
# HELP isobar_discovery_dns_oldest_answer_timestamp_seconds Time at which the oldest endpoints in force were resolved; 0 = there are none.
# TYPE isobar_discovery_dns_oldest_answer_timestamp_seconds gauge
isobar_discovery_dns_oldest_answer_timestamp_seconds 9.466848e+08
# HELP isobar_discovery_dns_queries_total Queries to DNS servers, by result: found, none, or failed.
# TYPE isobar_discovery_dns_queries_total counter
isobar_discovery_dns_queries_total{result="failed"} 0
isobar_discovery_dns_queries_total{result="found"} 2
isobar_discovery_dns_queries_total{result="none"} 2
# HELP isobar_discovery_dns_records_left_out Records and endpoints from DNS that Isobar can't use.
# TYPE isobar_discovery_dns_records_left_out gauge
isobar_discovery_dns_records_left_out 1
# HELP isobar_discovery_dns_save_errors_total Failed writes of the endpoints from DNS to the state directory.
# TYPE isobar_discovery_dns_save_errors_total counter
isobar_discovery_dns_save_errors_total 0
`
		if err := testutil.GatherAndCompare(w.metrics, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}
