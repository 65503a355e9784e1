package server_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// texts are the marks of a replica, oldest first.
func (m *member) texts() []string {
	m.t.Helper()
	var list admin.MarkList
	m.read("/v1/marks", &list)
	var out []string
	for _, x := range list.Marks {
		out = append(out, x.Text)
	}
	return out
}

// TestMarksOfAGroup asserts that a moment that any replica is told of is marked once in the
// charts of all of them, in the order of time, also of the next leader.
func TestMarksOfAGroup(t *testing.T) {
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	a := startMember(t, replicaConfig(t, "a", listen[0], election, checkoutAndCart, peers...))
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b := startMember(t, replicaConfig(t, "b", listen[1], election, checkoutAndCart, peers...))
	testhelp.Eventually(t, "b follows", func() bool { return b.group().Leader == "a" && b.server.Plan() != nil })
	at := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	b.writes("POST", "/v1/marks", `{"text": "deployment of v42", "who": "ann"}`)
	a.writes("POST", "/v1/marks", fmt.Sprintf(`{"text": "an hour ago", "at": %q, "who": "ann"}`, at))
	b.writes("POST", "/v1/marks", fmt.Sprintf(`{"text": "an hour ago", "at": %q, "who": "ann"}`, at)) // again
	want := []string{"an hour ago", "deployment of v42"}
	for _, m := range []*member{a, b} {
		testhelp.Eventually(t, "both marks, once and in order", func() bool { return slices.Equal(m.texts(), want) })
	}
	version := a.server.Plan().Version
	testhelp.Eventually(t, "later plans repeat them", func() bool { return b.server.Plan().Version > version+1 })
	if got := b.texts(); !slices.Equal(got, want) {
		t.Errorf("after two more plans: %q", got)
	}
	a.end()
	testhelp.Eventually(t, "b leads", func() bool { return b.group().Leader == "b" && b.server.Plan().Version > version+900_000 })
	if status, answer := b.send("POST", "/v1/marks", `{"text": "without a"}`, ""); status != http.StatusOK {
		t.Errorf("the next leader: %d %s", status, answer)
	}
	if got := b.texts(); !slices.Equal(got, append(want, "without a")) {
		t.Errorf("the next leader has %q", got)
	}
}
