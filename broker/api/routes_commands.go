package api

import (
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// commandRoutes registers what belongs to the capability "commands".
func (s *Server) commandRoutes() {
	const all, one = "/api/v1/instances/{id}/commands", "/api/v1/instances/{id}/commands/{command}"
	codes := append(providerCodes(), sdk.CodeNotFound)
	conflicting := append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict)
	registerEither(s, operation{
		method: http.MethodPost, path: all, id: "startCommand", tag: tagCommands,
		summary: "Run a command",
		details: "Answers 200 when the command has ended, with its output, or with background 201 as soon as it runs. " +
			"A client that goes away kills a command that is not in the background. " +
			"With the command ends all that it started, and with the instance end all commands.\n\n" +
			"With Accept: text/event-stream, output comes as events while it happens, unless the command is to run in the background.",
		success: []int{http.StatusOK, http.StatusCreated}, codes: codes, events: commandEvents(),
	}, func(body StartCommandRequest) bool { return !body.Background }, s.startCommand, s.streamCommand)
	register(s, operation{
		method: http.MethodGet, path: all, id: "listCommands", tag: tagCommands,
		summary: "List the commands of an instance",
		details: "Those that have ended stay for a while, at least the last ten.",
		success: []int{http.StatusOK}, codes: codes,
	}, s.listCommands)
	register(s, operation{
		method: http.MethodGet, path: one, id: "getCommand", tag: tagCommands,
		summary: "Look at a command",
		success: []int{http.StatusOK}, codes: codes,
	}, s.getCommand)
	register(s, operation{
		method: http.MethodDelete, path: one, id: "killCommand", tag: tagCommands,
		summary: "Kill a command and all that it started",
		details: "The command stays known with its output. One that has ended is left as it is.",
		success: []int{http.StatusNoContent}, codes: codes,
	}, s.killCommand)
	registerEither(s, operation{
		method: http.MethodGet, path: one + "/logs", id: "commandLogs", tag: tagCommands,
		summary: "Read what a command has printed",
		details: "Answers one page of what is kept: the last part of each stream. Ask again with the next offsets for more. " +
			"With Accept: text/event-stream it is all of that as events, and with follow also what comes.",
		query: []parameter{
			{name: "stdout_offset", kind: integerParameter, doc: "The first byte of stdout to read, counted from the command's start. Default 0."},
			{name: "stderr_offset", kind: integerParameter, doc: "The same of stderr."},
			{name: "follow", kind: booleanParameter, doc: "Go on with what comes, until the command has ended. It takes Accept: text/event-stream."},
		},
		success: []int{http.StatusOK}, codes: codes, events: commandEvents(),
	}, func(none) bool { return true }, s.commandLogs, s.streamLogs)
	stream(s, operation{
		method: http.MethodPost, path: one + "/stdin", id: "writeCommand", tag: tagCommands,
		summary: "Write to a command's standard input",
		details: "The body, of whatever type, is written as it is, as fast as the program reads. " +
			"A conflict means that standard input is closed, was never open, or is not read.",
		query: []parameter{
			{name: "end", kind: booleanParameter, doc: "Close standard input behind the body, which may be empty. A terminal gets the character for the end of input instead."},
			{name: "timeout", kind: numberParameter, most: stdinMost.Seconds(), doc: "Seconds to wait for a program that does not read. Default 30."},
		},
		consumes: "application/octet-stream",
		success:  []int{http.StatusNoContent}, codes: conflicting,
	}, s.writeCommand)
	register(s, operation{
		method: http.MethodPost, path: one + "/signal", id: "signalCommand", tag: tagCommands,
		summary: "Send a signal to every process of a command",
		success: []int{http.StatusNoContent}, codes: conflicting,
	}, s.signalCommand)
	register(s, operation{
		method: http.MethodPost, path: one + "/resize", id: "resizeCommand", tag: tagCommands,
		summary: "Tell a command's terminal its size",
		success: []int{http.StatusNoContent}, codes: conflicting,
	}, s.resizeCommand)
	stream(s, operation{
		method: http.MethodGet, path: one + "/terminal", id: "attachTerminal", tag: tagCommands,
		summary: "Sit down at a command's terminal",
		details: "A WebSocket. Binary frames are what is typed and what is shown. Text frames are JSON: {\"resize\": {\"rows\": 24, \"columns\": 80}} from you; " +
			"{\"lost\": bytes}, {\"done\": the command} and {\"error\": a problem} from the broker, which closes after the last two. " +
			"A client that leaves does not end the command, and may come back. " +
			"A browser, which cannot set headers, offers the subprotocols " + TerminalProtocol + " and bearer.<token>; the page must be of the broker's own origin.",
		query: []parameter{
			{name: "stdout_offset", kind: integerParameter, doc: "The first byte of the output to show. Default 0: all that is kept."},
		},
		success: []int{http.StatusSwitchingProtocols}, codes: append(conflicting, sdk.CodeNotAllowed),
	}, s.attachTerminal)
	register(s, operation{
		method: http.MethodPost, path: one + "/wait", id: "waitForCommand", tag: tagCommands,
		summary: "Wait for the end of a command",
		details: "Answers when the command has ended or the time is over: state tells which.",
		query: []parameter{
			{name: "timeout", kind: numberParameter, most: waitMost.Seconds(), doc: "Seconds. Default 30."},
		},
		success: []int{http.StatusOK}, codes: codes,
	}, s.waitForCommand)
}
