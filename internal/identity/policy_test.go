package identity_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/identity"
)

func rule(t *testing.T, match string, roles identity.Role, localities ...string) identity.Rule {
	t.Helper()
	p, err := identity.ParsePattern(match)
	if err != nil {
		t.Fatal(err)
	}
	r := identity.Rule{Match: p, Roles: roles}
	for _, l := range localities {
		x, err := identity.ParseLocality(l)
		if err != nil {
			t.Fatal(err)
		}
		r.Localities = append(r.Localities, x)
	}
	return r
}

func TestPolicy(t *testing.T) {
	policy := identity.Policy{
		rule(t, "spiffe://prod.example/east", identity.RoleClient|identity.RoleChecker, "us-east/*"),
		rule(t, "spiffe://prod.example/*", identity.RoleClient, "eu", "asia/a"),
		rule(t, "ops.example", identity.RoleAdmin),
	}
	tests := []struct {
		name, locality string
		role           identity.Role
		want           error
		says           []string
	}{
		{"spiffe://prod.example/east", "us-east/b", identity.RoleClient, nil, nil},
		{"spiffe://prod.example/east", "us-east/b", identity.RoleChecker, nil, nil},
		{"spiffe://prod.example/east", "eu/a", identity.RoleClient, nil, nil}, // by the second rule
		{"spiffe://prod.example/east", "eu/a", identity.RoleChecker, identity.ErrLocality, []string{"spiffe://prod.example/east", "checker", `"eu/a"`, "us-east/*"}},
		{"spiffe://prod.example/east", "us-west/a", identity.RoleClient, identity.ErrLocality, []string{"us-east/*, eu, asia/a"}},
		{"spiffe://prod.example/east", "", identity.RoleClient, identity.ErrLocality, []string{`""`}},
		{"spiffe://prod.example/x", "eu/a", identity.RoleAdmin, identity.ErrRole, []string{"spiffe://prod.example/x", "admin", "it has client"}},
		{"ops.example", "anywhere", identity.RoleAdmin, nil, nil},
		{"other.example", "eu/a", identity.RoleClient, identity.ErrUnknown, []string{"other.example", "client"}},
		{"", "eu/a", identity.RoleClient, identity.ErrAnonymous, []string{"client"}},
	}
	for _, tt := range tests {
		var p *identity.Peer
		if tt.name != "" {
			p = peer(t, tt.name)
		}
		err := policy.Check(p, tt.role, isobar.MustLocality(tt.locality))
		if !errors.Is(err, tt.want) {
			t.Errorf("%s as %s in %s: %v", tt.name, tt.role, tt.locality, err)
			continue
		}
		for _, s := range tt.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%q does not say %q", err, s)
			}
		}
		if err := identity.Policy(nil).Check(p, tt.role, isobar.MustLocality(tt.locality)); err != nil {
			t.Errorf("without a policy: %v", err)
		}
	}
}

func TestPeerNames(t *testing.T) {
	for want, names := range map[string][]string{
		"spiffe://prod.example/a": {"spiffe://prod.example/a", "b.example"},
		"b.example":               {"B.example", "https://x.example/"},
		"CN=common":               {"*.example"},
	} {
		if got := peer(t, names...).Name(); got != want {
			t.Errorf("%v: %s", names, got)
		}
	}
}
