package admin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
)

func TestCertificatesThatEndSoon(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		name       string
		from, left time.Duration // before and after now
		want       string        // "" = nothing
	}{
		{"for a year, with a month left", 335 * day, 30 * day, ""},
		{"for a year, with 13 days left", 352 * day, 13 * day, "expires at"},
		{"for an hour, with half of it left", time.Hour / 2, time.Hour / 2, ""},
		{"for an hour, with ten minutes left", 50 * time.Minute, 10 * time.Minute, "expires at"},
		{"just issued for two weeks", time.Minute, 14 * day, ""},
		{"expired", 90 * day, -time.Minute, "expired at"},
		{"not valid yet", -time.Hour, 90 * day, "not valid before"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := time.Now()
			srv := start(t, newWorld(), func(o *admin.Options) {
				processOf(o).certificates = func() []admin.Certificate {
					return []admin.Certificate{{Name: "xds", NotBefore: now.Add(-tt.from), NotAfter: now.Add(tt.left)}}
				}
			})
			var s admin.Status
			do(t, srv, http.MethodGet, "/v1/status", "").decode(t, &s)
			told := strings.Join(admin.AttentionTexts(s.Attention), "\n")
			if strings.Contains(told, "certificate") != (tt.want != "") || !strings.Contains(told, tt.want) || len(s.Certificates) != 1 {
				t.Errorf("got %q, %+v", told, s.Certificates)
			}
		})
	}
}

// TestPollersNeedNoAttention: who polls shows that it took an answer only when it
// asks again, which may be late, or never.
func TestPollersNeedNoAttention(t *testing.T) {
	for _, polls := range []bool{true, false} {
		srv := start(t, newWorld(), func(o *admin.Options) {
			fleetOf(o).clients = func() []admin.Client {
				return []admin.Client{{ID: "n", Polls: polls, Types: map[string]admin.ClientType{"eds": {Subscribed: 1, SentVersion: "7", AgeSeconds: 60, Waiting: true, WaitingSeconds: 60}}}}
			}
		})
		var s admin.Status
		do(t, srv, http.MethodGet, "/v1/status", "").decode(t, &s)
		if s.OK != polls || s.Clients.Behind != 1 || (s.Clients.OldestAck == "") != polls {
			t.Errorf("polls %v: %+v", polls, s)
		}
	}
}

// TestClientsThatAnswerAreInSync: after each plan all clients owe an answer for a moment.
func TestClientsThatAnswerAreInSync(t *testing.T) {
	for _, tc := range []struct {
		state  admin.ClientType
		inSync int
	}{
		{admin.ClientType{Waiting: true, WaitingSeconds: 1}, 1},
		{admin.ClientType{Waiting: true, WaitingSeconds: 3}, 0},
		{admin.ClientType{Waiting: true, WaitingSeconds: 1, Rejected: 1}, 0},
		{admin.ClientType{}, 0}, // it was not sent what it should have
		{admin.ClientType{InSync: true}, 1},
	} {
		srv := start(t, newWorld(), func(o *admin.Options) {
			fleetOf(o).clients = func() []admin.Client {
				return []admin.Client{{ID: "n", InSync: tc.state.InSync, Types: map[string]admin.ClientType{"eds": tc.state}}}
			}
		})
		var s admin.Status
		do(t, srv, http.MethodGet, "/v1/status", "").decode(t, &s)
		if s.Clients.InSync != tc.inSync {
			t.Errorf("%+v: %d in sync, want %d", tc.state, s.Clients.InSync, tc.inSync)
		}
	}
}

// TestLifetimesShorterThanARestart: clients would lose endpoints that work each time that
// the server restarts.
func TestLifetimesShorterThanARestart(t *testing.T) {
	for _, tt := range []struct {
		stale, ttl time.Duration
		want       int // lines of attention
	}{{10 * time.Second, 0, 1}, {10 * time.Second, 29 * time.Second, 2}, {30 * time.Second, time.Minute, 0}, {0, 0, 0}} {
		w := newWorld()
		svc := service("brief")
		svc.Assignment.EndpointStaleAfter, svc.Assignment.ResourceTTL = tt.stale, tt.ttl
		if _, _, err := w.Put("brief", svc, 0); err != nil {
			t.Fatal(err)
		}
		var s admin.Status
		do(t, start(t, w, func(*admin.Options) {}), http.MethodGet, "/v1/status", "").decode(t, &s)
		told := strings.Join(admin.AttentionTexts(s.Attention), "\n")
		if n := strings.Count(told, "brief: endpoint_stale_after 10s is shorter") + strings.Count(told, "brief: resource_ttl 29s is shorter"); n != tt.want {
			t.Errorf("endpoint_stale_after %v, resource_ttl %v: %q", tt.stale, tt.ttl, s.Attention)
		}
	}
}

// TestStatusBoundsWhatClientsSay: a client that refuses chooses its node ID, its cluster and
// its reason; none of them adds a line to the status, or fills it.
func TestStatusBoundsWhatClientsSay(t *testing.T) {
	long := "x\n" + strings.Repeat("y", 4096)
	srv := start(t, newWorld(), func(o *admin.Options) {
		fleetOf(o).clients = func() []admin.Client {
			return []admin.Client{{ID: long, Cluster: long, Types: map[string]admin.ClientType{"eds": {Subscribed: 1, Rejected: 1, NACK: &admin.NACK{Text: long}}}}}
		}
	})
	var s admin.Status
	do(t, srv, http.MethodGet, "/v1/status", "").decode(t, &s)
	if len(s.Attention) != 1 {
		t.Fatalf("got %+v", s.Attention)
	}
	text := admin.AttentionTexts(s.Attention)[0]
	name := `"x\n` + strings.Repeat("y", 62) + `"`
	if want := "node " + name + " (" + name + `), EDS: "x\ny`; !strings.Contains(text, want) || strings.Contains(text, "\n") || len(text) > 500 {
		t.Errorf("got %q, want %q in at most 500 bytes", text, want)
	}
}
