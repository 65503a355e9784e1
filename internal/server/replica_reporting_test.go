package server_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestClientsReportToOtherReplicas asserts that a client whose discovery stream and load report
// stream are on different replicas, as those of an Envoy may be, counts as one that reports
// load, on the leader and on the follower; and that both still name a client that has no load
// report stream.
func TestClientsReportToOtherReplicas(t *testing.T) {
	t.Parallel()
	a, b := startPair(t, "")

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	for _, c := range []struct {
		node string
		at   *member
	}{{"split-of-a", a}, {"split-of-b", b}, {"silent-at-a", a}, {"silent-at-b", b}} {
		running.Go(func() { _ = watchEDS(ctx, c.at.server.XDSAddress(), c.node) })
	}
	b.report("split-of-a", 10)
	a.report("split-of-b", 10)

	for m, other := range map[*member]string{a: "b", b: "a"} {
		own := m.group().Name
		testhelp.Eventually(t, own+" names the silent client", func() bool {
			_, told := silentClients(m.status())
			return told
		})
		text, _ := silentClients(m.status())
		if !strings.Contains(text, "1 client in us/a") || !strings.Contains(text, `"silent-at-`+own+`"`) {
			t.Errorf("%s tells: %s", own, text)
		}
		reports := map[string]string{}
		for _, c := range m.clients() {
			if len(c.Types) > 0 {
				reports[c.ID] = c.ReportsTo
			}
		}
		want := map[string]string{"split-of-" + own: other, "silent-at-" + own: ""}
		if fmt.Sprint(reports) != fmt.Sprint(want) {
			t.Errorf("clients of %s report to %v, want %v", own, reports, want)
		}
	}
}

// TestReportsOfSubscribersOfOtherReplicas asserts that load reports count where only subscribers
// may report, and the subscription of the client is on another replica; and that reports on
// services to which no client of the locality subscribes do not.
func TestReportsOfSubscribersOfOtherReplicas(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"leader", "follower"} {
		t.Run("reports to the "+role, func(t *testing.T) {
			t.Parallel()
			a, b := startPair(t, "reports: subscribed, ")
			reporter, subscribed := a, b
			if role == "follower" {
				reporter, subscribed = b, a
			}
			reporter.report("nobody", 1000)
			testhelp.Eventually(t, "the report is refused", func() bool { return rejectedEntries(t, reporter) > 0 })

			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			t.Cleanup(func() { stop(); running.Wait() })
			running.Go(func() { _ = watchEDS(ctx, subscribed.server.XDSAddress(), "split") })
			testhelp.Eventually(t, "the replica knows the subscription", func() bool {
				s, ok := reporter.server.Plan().Service("checkout")
				return ok && len(s.Result.Sources) == 1
			})
			if _, reported := a.decides(); reported > 0 {
				t.Errorf("nobody subscribed to checkout, and %v requests/s count", reported)
			}
			before := rejectedEntries(t, reporter)
			reporter.report("split", 1000)
			testhelp.Eventually(t, "the leader decides by the report", func() bool {
				_, reported := a.decides()
				return reported > 50
			})
			if n := rejectedEntries(t, reporter); n > before {
				t.Errorf("%v entries were refused", n-before)
			}
		})
	}
}

// startPair starts two replicas, of which a leads and b follows. xds is added to the section of
// that name.
func startPair(t *testing.T, xds string) (a, b *member) {
	t.Helper()
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	begin := func(name, listening string) *member {
		text := replicaConfig(t, name, listening, election, checkoutAndCart, "a="+listen[0], "b="+listen[1])
		return startMember(t, strings.Replace(text, "xds: {", "xds: {"+xds, 1))
	}
	a = begin("a", listen[0])
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b = begin("b", listen[1])
	testhelp.Eventually(t, "b follows", func() bool { return b.group().Removes })
	return a, b
}

func rejectedEntries(t *testing.T, m *member) (sum float64) {
	t.Helper()
	for _, n := range testhelp.Series(t, m.server.Metrics(), "isobar_lrs_unsubscribed_entries_total") {
		sum += n
	}
	return sum
}

func silentClients(s admin.Status) (text string, told bool) {
	for _, a := range s.Attention {
		if a.Code == admin.ClientsSilent {
			return a.Text, true
		}
	}
	return "", false
}

func (m *member) clients() []admin.Client {
	m.t.Helper()
	var list admin.ClientList
	m.read("/v1/clients", &list)
	return list.Clients
}
