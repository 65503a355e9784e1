// Package group decides what one replica of a group does: when it campaigns,
// claims an epoch, publishes, accepts a plan of another replica, and serves a
// client. It is pure: a [Node] gets the time and each event as arguments and
// returns the actions that its caller carries out. The caller runs the election
// engine, the connections between replicas and the disk.
//
// An engine (a lock file, etcd) excludes: it grants leadership to one replica at
// a time, and keeps one [Claim]. The group owns the rest. The winner of an
// election writes a claim, which names an epoch and a block of versions that no
// other claim contains, and publishes only after the engine has confirmed the
// claim. A replica that receives plans refuses lower epochs, and accepts a higher
// one only if the engine's claim names it.
package group
