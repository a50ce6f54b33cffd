package abuse

// Tools are the arguments of the tools that the front door for MCP has, as "tool.argument".
func Tools() Kind {
	return Kind{"Tools", "Arguments of the [tools for assistants](front-doors/mcp.md). What a tool does it asks the REST API for, so that the lines of its routes hold too.", []Line{
		{
			Of:    []string{"run_code.language", "run_code.code", "run_code.context", "run_code.requirements", "run_command.command", "run_command.cwd", "run_command.background"},
			Abuse: "Whoever has written what the assistant has read, to run code; the code, to go on without the assistant, to fill its memory, or to tell it something by a refusal's form.",
			Stops: "It is code of a tenant, in a sandbox. It ends with its caller, but for what was asked for in the background. Output is cut and said to be; a refusal is marked as an error, and output never is.",
			Tests: []string{"TestACallThatIsCancelledEndsItsProgram", "TestAClientThatLeavesEndsItsProgram", "TestAnswersFitIntoWhatHostsTake", "TestPublishedToolsUseTheDoor"},
		},
		{
			Of:    []string{"run_code.session", "run_command.session", "command_output.session", "stop_command.session", "write_file.session", "read_file.session", "list_files.session", "edit_file.session", "search_files.session", "expose_port.session", "create_session.session", "end_session.session", "list_sessions.after"},
			Abuse: "A tenant, for what is in another's session, or to end it.",
			Stops: "Sessions are the tenant's. Another's is one that there is not.",
			Tests: []string{"TestRefusalsSayTheCodeAndWhatToDo"},
		},
		{
			Of:    []string{"command_output.command", "stop_command.command", "command_output.stdout_offset", "command_output.stderr_offset", "read_file.offset", "read_file.limit"},
			Abuse: "A tenant, to have much read into the broker's memory, or what is not its own.",
			Stops: "Commands are those of one session. A part has a bound, and offsets are numbers within what there is.",
			Tests: []string{"TestWhatIsReadInPartsIsWhole", "TestRefusalsSayTheCodeAndWhatToDo", "TestAnswersFitIntoWhatHostsTake"},
		},
		{
			Of:    []string{"run_code.timeout", "run_command.timeout", "command_output.wait", "create_session.ttl", "expose_port.ttl"},
			Abuse: "A tenant, for machines and connections for longer than it may have them.",
			Stops: "The bounds are those of the REST API.",
			Tests: []string{"TestNothingOutlivesTheMaximumLifetime"},
		},
		{
			Of:    []string{"write_file.path", "write_file.content", "write_file.base64", "read_file.path", "list_files.path", "list_files.glob", "edit_file.path", "edit_file.old", "edit_file.new", "search_files.pattern", "search_files.path", "search_files.glob", "search_files.literal", "search_files.ignore_case"},
			Abuse: "A tenant, for files outside of the workspace, for bodies that fill memory, and for answers that do.",
			Stops: "Paths and patterns are judged as in the REST API. A body counts with all others; what is listed and found is cut to fit.",
			Tests: []string{"TestALargeArgumentIsRefusedClearly", "TestAnswersFitIntoWhatHostsTake", "TestNoRaceLeadsOut"},
		},
		{
			Of:    []string{"create_session.env"},
			Abuse: "Whoever reads what an assistant was answered, for secrets.",
			Stops: "Variables never come back, nor does a value that was refused.",
			Tests: []string{"TestSecretsOfASessionDoNotComeBack"},
		},
		{
			Of:    []string{"create_session.template", "expose_port.port"},
			Abuse: "A tenant, for a template that there is not, or to open what is another's; a program behind a link, to be seen by who was not told.",
			Stops: "Templates are those of the provider. A link is of one port of one instance, and expires.",
			Tests: []string{"TestRefusalsSayTheCodeAndWhatToDo", "TestWhatTheDoorCausesSaysSo"},
		},
	}}
}
