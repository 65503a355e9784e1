package config

import (
	"net"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/identity"
)

// Replicas says to which group of replicas the server belongs.
type Replicas struct {
	Group    string
	Name     string // of this replica
	Listen   string // IP:port, for other replicas
	Insecure bool   // plaintext beyond loopback is wanted
	TLS      *identity.Files
	Peers    []ReplicaPeer // the other replicas, sorted by name
	// Balance has replicas with clearly more connections than the others close some.
	Balance bool
	File    string // directory of the election by a lock file; one of File, Etcd and Kubernetes is set
	Etcd    *EtcdElection
	// Kubernetes is the election by a Lease.
	Kubernetes *KubernetesElection `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
}

// Address is where the replica listens for others; "" where there is no group.
func (r *Replicas) Address() string {
	if r == nil {
		return ""
	}
	return r.Listen
}

// ReplicaPeer is another replica of the group.
type ReplicaPeer struct {
	Name    string
	Address string // HOST:PORT
}

// EtcdElection is an etcd that decides which replica leads.
type EtcdElection struct {
	Endpoints []string
	Prefix    string // of all keys
	TLS       *ClientTLS
}

// DefaultEtcdPrefix is the prefix of keys in etcd.
const DefaultEtcdPrefix = "isobar"

// KubernetesElection is a Lease of a Kubernetes cluster that says which replica leads.
type KubernetesElection struct {
	Lease      string // its name
	Namespace  string // empty = that of the Pod
	Kubeconfig string // file; empty = the service account of the Pod
	Context    string // of the file; empty = its current one
}

// maxReplicas bounds a group, this replica included.
const maxReplicas = 15

// readReplicas reads the group. It returns where its listener stands, too.
func readReplicas(v strict.Value) (r *Replicas, at *strict.Value) {
	r = &Replicas{Balance: true}
	l := listener{}
	var peers []ReplicaPeer
	peersAt := v
	v.Object([]strict.Field{
		{Name: "group", Required: true, Read: func(v strict.Value) { r.Group = readReplicaName(v) }},
		{Name: "name", Read: func(v strict.Value) { r.Name = readReplicaName(v) }},
		required(l.listenField()), boolField("insecure", &l.insecure), tlsField(&l, &r.TLS),
		boolField("balance", &r.Balance),
		{Name: "peers", Required: true, Read: func(v strict.Value) {
			peersAt = v
			peers = readPeers(v)
		}},
		{Name: "election", Required: true, Read: func(v strict.Value) { readElection(v, r) }},
	})
	r.Listen, r.Insecure = l.checked()
	if r.TLS != nil && r.TLS.ClientCA == "" {
		v.Errorf("add client_ca to tls", "replicas show each other certificates, so tls needs client_ca, the authority that signs them")
	}
	if r.Name == "" {
		if host, err := os.Hostname(); err == nil && replicaName(host) {
			r.Name = host
		} else {
			v.Errorf("add name", "the host name can't be the name of this replica")
		}
	}
	r.choosePeers(peersAt, peers)
	return r, l.at
}

// choosePeers takes this replica out of the list of all replicas.
func (r *Replicas) choosePeers(at strict.Value, peers []ReplicaPeer) {
	var names []string
	for _, p := range peers {
		if slices.Contains(names, p.Name) {
			at.Errorf("write {name: NAME, address: HOST:PORT} where hosts are not the names of replicas", "two replicas are called %q", p.Name)
			return
		}
		names = append(names, p.Name)
		if p.Name != r.Name {
			r.Peers = append(r.Peers, p)
		}
	}
	slices.SortFunc(r.Peers, func(a, b ReplicaPeer) int { return strings.Compare(a.Name, b.Name) })
	switch {
	case len(names) == 0 || r.Name == "": // told already
	case !slices.Contains(names, r.Name):
		at.Errorf("list this replica, too, or set replicas.name to one of them", "peers lists %s, but not this replica, which is called %q",
			strings.Join(names, ", "), r.Name)
	case len(names) > maxReplicas:
		at.Errorf("a group has 3 or 5 replicas", "%d replicas, want at most %d", len(names), maxReplicas)
	}
}

// readPeers reads the replicas of the group: each as HOST:PORT, where the host is the
// name, or with a name of its own.
func readPeers(v strict.Value) []ReplicaPeer {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("list all replicas of the group", "no replica")
	}
	var out []ReplicaPeer
	for _, item := range items {
		var p ReplicaPeer
		if item.IsObject() {
			item.Object([]strict.Field{
				{Name: "name", Required: true, Read: func(v strict.Value) { p.Name = readReplicaName(v) }},
				{Name: "address", Required: true, Read: func(v strict.Value) { p.Address, _ = readPeer(v) }},
			})
		} else {
			p.Address, p.Name = readPeer(item)
		}
		if p.Address != "" && p.Name != "" {
			out = append(out, p)
		}
	}
	return out
}

// readPeer reads HOST:PORT and returns the host, too.
func readPeer(v strict.Value) (address, host string) {
	s, ok := v.Text()
	if !ok {
		return "", ""
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || port == "" || !printable(s) {
		v.Errorf("write it as HOST:PORT, for example isobar-0:18001", "%q is not the address of a replica", s)
		return "", ""
	}
	return s, host
}

func readElection(v strict.Value, r *Replicas) {
	v.Object([]strict.Field{
		pathField("file", &r.File),
		{Name: "etcd", Read: func(v strict.Value) { r.Etcd = readEtcd(v) }},
		{Name: "kubernetes", Read: func(v strict.Value) { r.Kubernetes = readLease(v) }},
	})
	engines := 0
	for _, is := range []bool{r.File != "", r.Etcd != nil, r.Kubernetes != nil} {
		if is {
			engines++
		}
	}
	if engines != 1 {
		v.Errorf("write etcd: {endpoints: [https://HOST:2379]}, kubernetes: {lease: NAME}, or file: DIRECTORY for replicas on one machine",
			"want one of etcd, kubernetes and file")
	}
}

// leaseName is the name of a Lease. Names of objects begin with it, so it is shorter than
// Kubernetes allows.
var leaseName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$`)

func readLease(v strict.Value) *KubernetesElection {
	e := &KubernetesElection{}
	var contextAt *strict.Value
	v.Object([]strict.Field{
		{Name: "lease", Required: true, Read: func(v strict.Value) {
			if s, ok := v.Text(); ok && !leaseName.MatchString(s) {
				v.Errorf("use at most 50 lower-case letters, digits and -", "%q can't be the name of the Lease", s)
			} else {
				e.Lease = s
			}
		}},
		{Name: "namespace", Read: func(v strict.Value) {
			if s, ok := v.Text(); ok && !dnsLabel.MatchString(s) {
				v.Errorf("write the name of the namespace, as kubectl get namespaces shows it", "%q is not the name of a namespace", s)
			} else {
				e.Namespace = s
			}
		}},
		fileField("kubeconfig", &e.Kubeconfig),
		{Name: "context", Read: func(v strict.Value) { contextAt, e.Context = &v, text(v) }},
	})
	if contextAt != nil && e.Kubeconfig == "" {
		contextAt.Errorf("add kubeconfig, or remove context", "context belongs to kubeconfig")
	}
	if e.Kubeconfig != "" && e.Namespace == "" {
		v.Errorf("add namespace: NAME, that of the Lease", "outside of a cluster the namespace is not known")
	}
	return e
}

func readEtcd(v strict.Value) *EtcdElection {
	e := &EtcdElection{Prefix: DefaultEtcdPrefix}
	v.Object([]strict.Field{
		{Name: "endpoints", Required: true, Read: func(v strict.Value) {
			items, ok := v.List()
			if ok && len(items) == 0 {
				v.Errorf("list the members of etcd", "no endpoint")
			}
			for _, item := range items {
				s, ok := item.Text()
				if !ok {
					continue
				}
				scheme, rest, _ := strings.Cut(s, "://")
				if host, port, err := net.SplitHostPort(rest); err != nil || host == "" || port == "" || scheme != "http" && scheme != "https" {
					item.Errorf("write it as https://HOST:2379", "%q is not an endpoint of etcd", s)
					continue
				}
				e.Endpoints = append(e.Endpoints, s)
			}
		}},
		{Name: "prefix", Read: func(v strict.Value) {
			if s, ok := v.Text(); ok && strings.Trim(s, "/") != "" && printable(s) {
				e.Prefix = strings.TrimRight(s, "/")
			} else if ok {
				v.Errorf("leave it out for "+DefaultEtcdPrefix, "%q can't be the prefix of keys", s)
			}
		}},
		{Name: "tls", Read: func(v strict.Value) { e.TLS = readClientTLS(v) }},
	})
	for _, endpoint := range e.Endpoints {
		if strings.HasPrefix(endpoint, "http://") && !onLoopback(strings.TrimPrefix(endpoint, "http://")) {
			v.Errorf("write https://", "%s is another machine, and would be spoken with in plaintext", endpoint)
		}
	}
	return e
}

func readReplicaName(v strict.Value) string {
	s, ok := v.Text()
	if ok && !replicaName(s) {
		v.Errorf("use at most 63 letters, digits, - _ and ., and begin with a letter or digit", "%q is not a name", s)
	}
	return s
}

func replicaName(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && len(s) <= 63 && strings.Trim(s, letters+"-_.") == "" && strings.ContainsRune(letters, rune(s[0]))
}
