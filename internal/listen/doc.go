// Package listen is what stands between the network and the services: listeners, TLS,
// limits on what clients may take (with package admission), checks of who they are (with
// package identity), and how they are sent away when the server stops.
package listen
