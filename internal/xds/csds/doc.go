// Package csds answers what clients were sent, and what they said to it: the
// client status discovery service of xDS v3, as a management server gives it.
// There is one configuration for each open discovery stream.
package csds
