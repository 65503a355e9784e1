package identity

import (
	"fmt"
	"strings"
)

// Role is what a client may do.
type Role uint8

// The roles.
const (
	RoleClient  Role = 1 << iota // discovery and load reports
	RoleChecker                  // health discovery
	RoleAdmin                    // client status, channelz, reflection
)

// roleNames are in the order of display.
var roleNames = []struct {
	role Role
	name string
}{{RoleClient, "client"}, {RoleChecker, "checker"}, {RoleAdmin, "admin"}}

// ParseRole reads the name of one role.
func ParseRole(s string) (Role, error) {
	for _, r := range roleNames {
		if r.name == s {
			return r.role, nil
		}
	}
	return 0, fmt.Errorf("%q is not a role: want client, checker or admin", s)
}

// RoleNames lists the names that ParseRole takes.
func RoleNames() []string {
	out := make([]string, len(roleNames))
	for i, r := range roleNames {
		out[i] = r.name
	}
	return out
}

// Has tells whether all roles of o are among those of r.
func (r Role) Has(o Role) bool { return r&o == o }

// MarshalText lists the roles, with commas between them.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String lists the roles, with commas between them.
func (r Role) String() string {
	var names []string
	for _, x := range roleNames {
		if r.Has(x.role) {
			names = append(names, x.name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
