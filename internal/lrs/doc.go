// Package lrs serves the load reporting service: it tells clients which services to report and
// how often, checks their reports, and keeps one window per stream until the control loop
// collects it.
package lrs
