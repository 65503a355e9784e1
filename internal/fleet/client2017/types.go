package client2017

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// Node is who the client says it is.
type Node struct {
	ID           string    `json:"id,omitempty"`
	Cluster      string    `json:"cluster,omitempty"`
	Locality     *Locality `json:"locality,omitempty"`
	BuildVersion string    `json:"build_version,omitempty"`
}

// Locality is where something runs.
type Locality struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
}

// Address is that of a socket.
type Address struct {
	SocketAddress struct {
		Address string `json:"address"`
		Port    uint32 `json:"port_value"`
	} `json:"socket_address"`
}

// String returns "ip:port".
func (a *Address) String() string {
	ip, err := netip.ParseAddr(a.SocketAddress.Address)
	if err != nil || a.SocketAddress.Port > 1<<16-1 {
		return fmt.Sprintf("%s:%d", a.SocketAddress.Address, a.SocketAddress.Port)
	}
	return netip.AddrPortFrom(ip, uint16(a.SocketAddress.Port)).String()
}

// Endpoint is a host.
type Endpoint struct {
	Address Address `json:"address"`
}

// Assignment is a ClusterLoadAssignment.
type Assignment struct {
	ClusterName string          `json:"cluster_name"`
	Endpoints   []LocalityGroup `json:"endpoints"`
	Policy      *struct {
		DropOverload float64 `json:"drop_overload"` // percent
	} `json:"policy"`
}

// Drop is the part of requests to drop, in percent.
func (a *Assignment) Drop() float64 {
	if a.Policy == nil {
		return 0
	}
	return a.Policy.DropOverload
}

// LocalityGroup is the endpoints of a locality in one priority. A weight of 0 is
// none.
type LocalityGroup struct {
	Locality  Locality `json:"locality"`
	Endpoints []struct {
		Endpoint Endpoint `json:"endpoint"`
		Health   string   `json:"health_status"`
		Weight   uint32   `json:"load_balancing_weight"`
	} `json:"lb_endpoints"`
	Weight   uint32 `json:"load_balancing_weight"`
	Priority uint32 `json:"priority"`
}

// ClusterStats is what is reported on a cluster: neither for how long, nor how
// many requests were issued.
type ClusterStats struct {
	ClusterName string          `json:"cluster_name"`
	Localities  []LocalityStats `json:"upstream_locality_stats,omitempty"`
	Dropped     uint64          `json:"total_dropped_requests,string,omitempty"`
}

// LocalityStats is what is reported on a locality of it.
type LocalityStats struct {
	Locality   Locality `json:"locality"`
	Succeeded  uint64   `json:"total_successful_requests,string,omitempty"`
	InProgress uint64   `json:"total_requests_in_progress,string,omitempty"`
	Errors     uint64   `json:"total_error_requests,string,omitempty"`
	Priority   uint32   `json:"priority,omitempty"`
}

// LoadRequest is what a server asks to be told.
type LoadRequest struct {
	Clusters []string `json:"clusters"`
	Interval Duration `json:"load_reporting_interval"`
}

// Specifier is what a checker shall probe.
type Specifier struct {
	Clusters []ClusterCheck `json:"health_check"`
	Interval Duration       `json:"interval"`
}

// ClusterCheck is one cluster of it.
type ClusterCheck struct {
	ClusterName string  `json:"cluster_name"`
	Checks      []Check `json:"health_checks"`
	Localities  []struct {
		Locality  Locality   `json:"locality"`
		Endpoints []Endpoint `json:"endpoints"`
	} `json:"endpoints"`
}

// Check is one way to probe; one of the probes is set.
type Check struct {
	Timeout            Duration `json:"timeout"`
	Interval           Duration `json:"interval"`
	Jitter             Duration `json:"interval_jitter"`
	UnhealthyThreshold uint32   `json:"unhealthy_threshold"`
	HealthyThreshold   uint32   `json:"healthy_threshold"`
	HTTP               *struct {
		Host string `json:"host"`
		Path string `json:"path"`
	} `json:"http_health_check"`
	TCP   *struct{} `json:"tcp_health_check"`
	Redis *struct{} `json:"redis_health_check"`
}

// EndpointHealth is the word of a checker on an endpoint: HEALTHY, UNHEALTHY or
// TIMEOUT.
type EndpointHealth struct {
	Endpoint Endpoint `json:"endpoint"`
	Status   string   `json:"health_status"`
}

// Duration is written as in JSON: "1.500s".
type Duration time.Duration

// UnmarshalJSON reads a duration; null is 0.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s *string
	if err := json.Unmarshal(b, &s); err != nil || s == nil {
		return err
	}
	v, err := time.ParseDuration(*s)
	*d = Duration(v)
	return err
}
