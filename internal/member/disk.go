package member

import (
	"encoding/json"

	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/plan"
)

// State keeps what a replica has to know after a restart, and has what the server kept
// before it was one.
type State interface {
	// LoadPlan returns the plan of the single server; nil where there is none.
	LoadPlan() (*plan.Saved, error)
	// Read returns what is kept under a key; nil where nothing is.
	Read(key string) ([]byte, error)
	Write(key string, data []byte) error
}

// disk is the state as package replica uses it.
type disk struct{ state State }

const (
	replicaKey     = "replica"
	replicaPlanKey = "replica-plan"
	// singleKey has what operators wrote before the server was a replica.
	singleKey = "sources-alone"
)

// LoadReplica implements [replica.Disk].
func (d disk) LoadReplica() ([]byte, error) { return d.state.Read(replicaKey) }

// SaveReplica implements [replica.Disk].
func (d disk) SaveReplica(data []byte) error { return d.state.Write(replicaKey, data) }

// LoadPlan implements [replica.Disk].
func (d disk) LoadPlan() ([]byte, error) { return d.state.Read(replicaPlanKey) }

// SavePlan implements [replica.Disk].
func (d disk) SavePlan(data []byte) error { return d.state.Write(replicaPlanKey, data) }

// keepSingle keeps a copy of what operators wrote before this server was a replica. The
// first leader of a group brings its own into the group. Others follow the group, and
// say that theirs is not in force. It returns how many entries it kept.
func (d disk) keepSingle(registry *discovery.Registry) (kept int, err error) {
	if joined, err := d.LoadReplica(); err != nil || joined != nil {
		return 0, err
	}
	entries, err := registry.Entries()
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	data, err := json.Marshal(entries)
	if err != nil {
		return 0, err
	}
	return len(entries), d.state.Write(singleKey, data)
}
