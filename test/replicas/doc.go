// Package replicas runs groups of replicas against a real etcd, whose server is
// built from its Go module. It is a module of its own, so that users of Isobar never
// download that server.
package replicas
