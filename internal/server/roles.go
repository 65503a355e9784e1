package server

import (
	"strings"

	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/identity"
)

// roleOf gives the role that a method asks for, by its service; 0 where none
// is asked for: a health check tells nothing but that the server is there. What
// is not named here is for operators.
func roleOf(method string) identity.Role {
	if serviceOf(method) == "Health" {
		return 0
	}
	switch kindOf(method) {
	case admission.HealthChecks:
		return identity.RoleChecker
	case admission.Discovery, admission.LoadReports:
		return identity.RoleClient
	default:
		return identity.RoleAdmin
	}
}

// kindOf tells what a method is for, by its service. What is not named here is
// for operators.
func kindOf(method string) admission.Kind {
	name := serviceOf(method)
	switch {
	case name == "HealthDiscoveryService":
		return admission.HealthChecks
	case name == "ClientStatusDiscoveryService":
		return admission.Operation
	case name == "LoadReportingService":
		return admission.LoadReports
	case strings.HasSuffix(name, "DiscoveryService"):
		return admission.Discovery
	default:
		return admission.Operation
	}
}

// serviceOf gives the name of a method's service, without its package.
func serviceOf(method string) string {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service[strings.LastIndexByte(service, '.')+1:]
}
