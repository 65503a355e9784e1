package server

import (
	"strings"

	"github.com/isobar-xds/isobar/internal/identity"
)

// roleOf gives the role that a method asks for, by its service; 0 where none
// is asked for: a health check tells nothing but that the server is there. What
// is not named here is for operators.
func roleOf(method string) identity.Role {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	name := service[strings.LastIndexByte(service, '.')+1:]
	switch {
	case name == "Health":
		return 0
	case name == "HealthDiscoveryService":
		return identity.RoleChecker
	case name == "ClientStatusDiscoveryService":
		return identity.RoleAdmin
	case name == "LoadReportingService", strings.HasSuffix(name, "DiscoveryService"):
		return identity.RoleClient
	default:
		return identity.RoleAdmin
	}
}
