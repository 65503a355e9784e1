package dns_test

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/discovery/dns"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// FuzzAnswer lets a server answer every question with the same bytes, but for the
// id: whatever they are, the provider goes on, and what it hands over makes a plan.
func FuzzAnswer(f *testing.F) {
	for _, records := range [][]string{
		nil,
		{"a.example. 60 IN A 10.1.0.1", "a.example. 60 IN A 10.1.0.2"},
		{"a.example. 60 IN SRV 1 2 80 a.example.", "a.example. 60 IN SRV 1 0 80 b.example."},
		{"a.example. 60 IN CNAME a.example."},
		{"a.example. 60 IN CNAME b.example.", "b.example. 4294967295 IN A 0.0.0.0"},
	} {
		for _, kind := range []uint16{miekg.TypeA, miekg.TypeSRV} {
			z := &zone{}
			for _, text := range records {
				rr, err := miekg.NewRR(text)
				if err != nil {
					f.Fatal(err)
				}
				z.records = append(z.records, rr)
			}
			m := new(miekg.Msg)
			m.SetQuestion("a.example.", kind)
			m.Response = true
			z.fill(m, "a.example.", kind)
			packed, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(packed)
		}
	}
	cfg := configuration(svc("s", "us/a", host("a.example"), "us/b", srv("a.example")))
	f.Fuzz(func(t *testing.T, data []byte) {
		bubble.Test(t, func(t *testing.T) {
			run(t, newMemory(t), cfg, func(_ context.Context, _, _ string) (net.Conn, error) { return &parrot{answer: data}, nil })
		})
	})
}

// run lets a provider ask for a while, and plans what it hands over.
func run(t *testing.T, kept *store.Memory, cfg *dns.Config, dial func(context.Context, string, string) (net.Conn, error)) {
	t.Helper()
	registry, err := discovery.Open(t.Context(), discovery.Options{Store: kept, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := dns.Open(t.Context(), dns.Options{Registry: registry.Provider(isobar.OwnerDNS), Store: kept, Dial: dial})
	if err != nil {
		return
	}
	if err := p.Configure(cfg, func(listed, _ []isobar.Service) error { return registry.Provider(isobar.OwnerDNS).PutListed(listed) }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
	top, table := registry.State()
	_, _ = plan.Next(plan.Input{Now: time.Unix(0, 0), Trigger: assign.Reapply, Topology: top, Health: table, Version: 1}) // an error keeps the plan before
	p.Status()
}

// parrot is a connection that answers every question with the same bytes, and the
// id of the question.
type parrot struct {
	net.Conn

	answer []byte
	asked  []byte
	reply  []byte
}

func (p *parrot) Write(b []byte) (int, error) {
	p.asked = append(p.asked, b...)
	if len(p.asked) >= 4 && p.reply == nil { // two bytes of length, two of id
		message := append([]byte{}, p.answer...)
		copy(message, p.asked[2:4])
		p.reply = binary.BigEndian.AppendUint16(nil, uint16(len(message))) // a longer one is cut off, as it may be
		p.reply = append(p.reply, message...)
	}
	return len(b), nil
}

func (p *parrot) Read(b []byte) (int, error) {
	if len(p.reply) == 0 {
		return 0, net.ErrClosed
	}
	n := copy(b, p.reply)
	p.reply = p.reply[n:]
	return n, nil
}

func (*parrot) Close() error                     { return nil }
func (*parrot) SetDeadline(time.Time) error      { return nil }
func (*parrot) SetReadDeadline(time.Time) error  { return nil }
func (*parrot) SetWriteDeadline(time.Time) error { return nil }

// FuzzSaved opens a provider on what is said to have been resolved last, which may
// be damaged in any way: it is refused, or handed over as something that the
// registry can take.
func FuzzSaved(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"format":1,"names":[{"name":"a.example","port":80,"at":"2030-01-01T00:00:00Z","endpoints":[{"address":"10.0.0.1:80"}]},{"name":"a.example","port":80}]}`))
	f.Add([]byte(`{"format":1,"names":[{"name":"a.example","srv":true,"endpoints":[{"address":"x","weight":4294967295},{"address":"x","weight":4294967295}]}]}`))
	f.Add([]byte(`{"format":2}`))
	cfg := configuration(svc("s", "us/a", host("a.example"), "us/b", srv("a.example")))
	f.Fuzz(func(t *testing.T, data []byte) {
		bubble.Test(t, func(t *testing.T) {
			kept := newMemory(t)
			if _, err := kept.CompareAndSwap(t.Context(), "dns-source", 0, data); err != nil {
				t.Fatal(err)
			}
			run(t, kept, cfg, func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed })
		})
	})
}
