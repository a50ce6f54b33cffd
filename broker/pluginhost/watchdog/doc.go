// Package watchdog ends a program together with everything that it has started.
//
// A Host starts a program through a process of its own, the watchdog, which is the
// same executable as the host: its main calls Main before anything else. The watchdog
// is a subreaper, so whatever the program starts stays below it, however often it
// forks, with whatever session. When the program has ended, or the host wants it to,
// or the host is gone, the watchdog ends all that is below it and then itself. That
// needs no rights beyond those of the user.
//
// If the watchdog is killed, its program gets SIGKILL from the kernel and a host that
// adopts orphans ends the rest. What nobody is left to end, because host and watchdog
// were killed at the same moment, carries a mark in its environment, by which
// EndLeftBehind finds it later. By the same mark it waits for programs whose watchdog
// gives them time yet.
//
// What the program says and how it is spoken to is the business of package
// pluginhost. The package works on Linux only.
package watchdog
