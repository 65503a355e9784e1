package server_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestPollsAreHeldToTheSame: clients that poll show who they are, and pay the
// same rate, as those with streams.
func TestPollsAreHeldToTheSame(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	l := onLoopback(t, func(c *config.Config) {
		c.XDS.ListenREST = "127.0.0.1:0"
		c.XDS.TLS = &files
		c.XDS.Admission = config.Admission{StreamsPerSecond: 1, Burst: 20}
		c.Identities = policy(t, [3]string{"client.example", "client", "us/*"}, [3]string{"checker.example", "checker", ""})
	})
	client := func(name string) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client(&identitytest.Leaf{DNS: []string{name}}), DisableKeepAlives: false}}
	}
	poll := func(c *http.Client, locality string) (int, http.Header, string) {
		t.Helper()
		region, zone, _ := strings.Cut(locality, "/")
		body := `{"node": {"id": "p", "locality": {"region": "` + region + `", "zone": "` + zone + `"}}, "resource_names": ["checkout"]}`
		resp, err := c.Post("https://"+l.rest+"/v3/discovery:endpoints", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, string(answer)
	}
	known, checker := client("client.example"), client("checker.example")
	defer known.CloseIdleConnections()
	defer checker.CloseIdleConnections()
	for _, tt := range []struct {
		client   *http.Client
		locality string
		want     int
		says     string
	}{
		{known, "us/a", 200, "10.0.0.1"},
		{known, "eu/a", 403, "locality not allowed"},
		{checker, "us/a", 403, "role not allowed"},
	} {
		if code, _, body := poll(tt.client, tt.locality); code != tt.want || !strings.Contains(body, tt.says) {
			t.Errorf("%s: %d %s", tt.locality, code, body)
		}
	}
	refused := 0
	for range 20 {
		code, header, body := poll(known, "us/a")
		if code != http.StatusTooManyRequests {
			continue
		}
		refused++
		if wait, err := strconv.Atoi(header.Get("Retry-After")); err != nil || wait < 1 || wait > 10 || !strings.Contains(body, "too many new streams from your address") {
			t.Errorf("told to wait %q: %s", header.Get("Retry-After"), body)
		}
	}
	if refused < 10 {
		t.Errorf("%d of 20 polls beyond the burst were refused", refused)
	}
}

// TestWebPagesDoNotPoll: a page that an operator looks at can send requests to
// loopback, too.
func TestWebPagesDoNotPoll(t *testing.T) {
	l := onLoopback(t, func(c *config.Config) { c.XDS.ListenREST = "127.0.0.1:0" })
	for _, address := range []string{l.rest, l.server.AdminAddress()} {
		for origin, want := range map[string]int{"https://evil.example": http.StatusForbidden, "": http.StatusOK} {
			body := strings.NewReader(`{"health_check_request": {"node": {"id": "x"}, "capability": {"health_check_protocols": ["TCP"]}}}`)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+rpc.CheckerPath, body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "text/plain")
			if origin != "" {
				req.Header.Set("Origin", origin)
			}
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s from %q: %d", address, origin, resp.StatusCode)
			}
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestReboundPagesDoNotPoll: a page whose name was rebound to our address is of
// the same origin for its browser. An Envoy sends the name of its cluster, which
// we don't know either, and no origin.
func TestReboundPagesDoNotPoll(t *testing.T) {
	l := onLoopback(t, func(c *config.Config) {
		c.XDS.ListenREST = "127.0.0.1:0"
		c.Admin.Hosts = []string{"isobar.internal"}
	})
	for _, tt := range []struct {
		name, host string
		header     [2]string
		want       int
	}{
		{"an Envoy", "xds_cluster", [2]string{}, http.StatusOK},
		{"an Envoy whose cluster has a dotted name", "xds.example", [2]string{}, http.StatusOK},
		{"a rebound page", "evil.example:18002", [2]string{"Origin", "http://evil.example:18002"}, http.StatusForbidden},
		{"a rebound page without its origin", "evil.example", [2]string{"Sec-Fetch-Site", "same-origin"}, http.StatusForbidden},
		{"a sandboxed page", l.rest, [2]string{"Origin", "null"}, http.StatusForbidden},
		{"a page of ours", "isobar.internal", [2]string{"Origin", "http://isobar.internal"}, http.StatusOK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := strings.NewReader(`{"node": {"id": "x", "locality": {"region": "us", "zone": "a"}}, "resource_names": ["checkout"]}`)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.rest+"/v3/discovery:endpoints", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = tt.host
			if tt.header[0] != "" {
				req.Header.Set(tt.header[0], tt.header[1])
			}
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != tt.want {
				t.Errorf("%d %s %v", resp.StatusCode, answer, err)
			}
		})
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()

	remote, err := admin.NewRemote(l.server.AdminAddress())
	if err != nil {
		t.Fatal(err)
	}
	list, err := remote.Clients(t.Context())
	if err != nil || len(list.Clients) != 1 || !list.Clients[0].Polls {
		t.Errorf("%+v is no client that polls, %v", list.Clients, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestPollsUntilTheEnd: who polls is answered as long as there are others to send
// away, and so learns what it is to drop no longer.
func TestPollsUntilTheEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := configuration(t)
		cfg.StopSpread = 10 * time.Second
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		grpc, rest := bufconn.Listen(1<<16), bufconn.Listen(1<<16)
		s, err := server.New(cfg, server.Listeners{XDS: grpc, REST: rest}, server.Options{Store: kept, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		client := &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return rest.DialContext(ctx) },
		}}
		defer client.CloseIdleConnections()
		poll := func() error {
			body := `{"node": {"id": "p", "locality": {"region": "us", "zone": "a"}}, "resource_names": ["checkout"]}`
			resp, err := client.Post("http://localhost/v3/discovery:endpoints", "application/json", strings.NewReader(body))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s, %w", resp.Status, err)
			}
			return nil
		}
		conn := testhelp.Dial(t, grpc) // so that there is someone to send away
		defer func() { _ = conn.Close() }()
		if _, _, err := subscribe(t.Context(), conn, nodeIn("n", "us/a"), "checkout"); err != nil {
			t.Fatal(err)
		}
		if err := poll(); err != nil {
			t.Fatal(err)
		}
		stop()
		synctest.Wait()
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // virtual time: within goAwayPatience
		select {
		case err := <-done:
			t.Fatalf("it has stopped already: %v", err)
		default:
		}
		if err := poll(); err != nil {
			t.Errorf("a poll while clients are sent away: %v", err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
