package abuse

// Routes are the operations of the OpenAPI document, by their ids.
func Routes() Kind {
	return Kind{"Routes", "By the ids of [the OpenAPI document](agents.md). All but those of the first line and of links want a token; a tenant sees nothing of another's.", []Line{
		{
			Of:    []string{"healthz", "readyz", "openapi"},
			Abuse: "Anybody, to learn what is inside, or to hold connections.",
			Stops: "They name no tenant and no path, and take nothing from the request. Connections without a token make room for others.",
			Tests: []string{"TestReadiness", "TestConnectionsWithoutATokenAreInNobodysWay"},
		},
		{
			Of:    []string{"execute", "executeInInstance"},
			Abuse: "A tenant, for more than its share of machines, memory and money; to run code twice; the code, to forge its own result or to break the client that reads it.",
			Stops: "Quotas, time limits and bounds of output; a key carries out one request; results are checked as those of a stranger.",
			Tests: []string{"TestEachLimitIsRefusedByItsName", "TestTheSameRequestWithTheSameKeyIsCarriedOutOnce", "TestAResultThatClientsCannotReadIsAFailure", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"interruptExecution"},
			Abuse: "A tenant, to end what is another's, or its own instance.",
			Stops: "Names of executions are those of one instance, and the instance is the tenant's.",
			Tests: []string{"TestWhatCannotBeInterrupted", "TestATenantSeesNothingOfAnother"},
		},
		{
			Of:    []string{"createInstance", "renewInstance"},
			Abuse: "A tenant, to keep machines for ever, or to take all of them.",
			Stops: "Quotas, and a lifetime that nothing prolongs.",
			Tests: []string{"TestNothingOutlivesTheMaximumLifetime", "TestRenewalsThatAreRefused", "TestNoSlotIsLostOrGivenTwice"},
		},
		{
			Of:    []string{"listInstances", "getInstance", "destroyInstance", "instanceMetrics"},
			Abuse: "A tenant, to see, end or watch what is another's; the next tenant of a name, for what the last one left.",
			Stops: "Another's instance gets the answer of one that never was. What a tenant had ends with it.",
			Tests: []string{"TestTenantsAreBlindForEachOther", "TestWhatATenantHadEndsWithIt", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"pauseInstance", "resumeInstance"},
			Abuse: "A tenant, to block an instance that is in use, also for whoever shares it.",
			Stops: "What runs is not paused, and a resume of what runs changes nothing and waits for nothing.",
			Tests: []string{"TestAResumeOfWhatRunsHindersNobody", "TestWhatRunsIsNotPaused", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"installPackages"},
			Abuse: "A tenant or its code, to have the host load and run what it likes, or for a way out to the network.",
			Stops: "Off unless the operator turns it on; names are checked, options and addresses refused; the way out leads to the index alone, and code cannot use it.",
			Tests: []string{"TestWhatIsNotAllowedIsNotInstalled", "TestUserCodeCannotUseTheWayOutOfAnInstallation", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"listFiles", "statFile", "readFile", "searchFiles", "readArchive"},
			Abuse: "A tenant, for files outside of the workspace; for patterns that never end; its code, by links, pipes and names that are no text.",
			Stops: "The guest opens below the workspace only, on its side of gVisor. Patterns, depths, lines and answers are bounded, and end with their caller.",
			Tests: []string{"TestNoRaceLeadsOut", "TestPatternsAreBounded", "TestNamesThatAreNotUTF8", "TestAPipeNeverBlocks", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"writeFile", "copyFile", "moveFile", "makeDirectory", "removeFile", "replaceInFiles"},
			Abuse: "A tenant, to write outside of the workspace, to fill a disk, to leave half a file.",
			Stops: "As for reading; the workspace has its size; a file takes its place when it is whole.",
			Tests: []string{"TestNoRaceLeadsOut", "TestADiskOrMemoryThatIsFullEndsAnUpload", "TestACutUploadLeavesNoPartOfAFile", "TestReplacingEndsWithItsContext"},
		},
		{
			Of:    []string{"setFileMode"},
			Abuse: "A tenant, to change by a link what is outside of the workspace, or to make a program that runs as its owner.",
			Stops: "What a link leads to outside is refused, and so are bits but those of permissions.",
			Tests: []string{"TestModesAreSetOfWhatIsInsideOnly"},
		},
		{
			Of:    []string{"writeArchive", "uploadFiles"},
			Abuse: "A tenant, by bombs, links, devices and names in archives and forms; a network that cuts one.",
			Stops: "Entries are bounded and written below the workspace; links that lead out are refused; what lacks its end is cut, not whole.",
			Tests: []string{"TestABombIsNoArchive", "TestAnArchiveIsRefusedWhereItMisleads", "TestFilenamesOfForms", "TestAFormHasNotAnyNumberOfFiles", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"watchFiles"},
			Abuse: "A tenant, to hold streams and memory by changes that nobody reads.",
			Stops: "Connections of a tenant are counted; a reader that takes nothing is given up; watches hold up no stop.",
			Tests: []string{"TestAReaderThatTakesNothingIsGivenUp", "TestABrokerThatStopsDoesNotWaitForWatchers"},
		},
		{
			Of:    []string{"startCommand", "listCommands", "getCommand", "killCommand", "commandLogs", "waitForCommand", "signalCommand", "writeCommand", "resizeCommand"},
			Abuse: "A tenant, for more processes, logs and open streams than it may have; its commands, to outlive their instance.",
			Stops: "Commands of an instance are bounded, and so are their logs; all end with the instance.",
			Tests: []string{"TestCommandsAreListedAndBounded", "TestCommandsEndWithTheirInstance", "TestLogsInPages", "TestStdinThatIsNotReadIsAConflict"},
		},
		{
			Of:    []string{"attachTerminal"},
			Abuse: "A page in a browser, to type into a terminal by a handshake of its own; other code of the instance, to read what is typed.",
			Stops: "A handshake needs the token, and one of another origin is refused. A terminal is open to its program alone.",
			Tests: []string{"TestTerminalsOverWebSocket", "TestATerminalIsForItsProgramAlone", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"createContext", "listContexts", "getContext", "deleteContext", "restartContext"},
			Abuse: "A tenant, to keep any number of interpreters; its code, to block their end by descriptors that somebody else keeps.",
			Stops: "Contexts are counted, the default one too, and end with a deadline whatever holds them.",
			Tests: []string{"TestTheEndsOfAContext", "TestADescriptorThatSomebodyKeepsHoldsUpNothing", "TestManyFirstUsesMakeOneContext", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"getPort", "postPort", "putPort", "patchPort", "deletePort", "optionsPort"},
			Abuse: "The program, for the token of its tenant, to steer proxies, to speak for the broker's origin; a tenant, to reach other hosts.",
			Stops: "Tokens are taken out, wherever they stand; fields that steer or hold for an origin are too, and trailers. Only loopback of the sandbox is dialled.",
			Tests: []string{"TestTokensStayWithTheBroker", "TestAProgramDoesNotSteerWhatStandsBeforeTheBroker", "TestTrailersStayBehind", "TestAProgramReachesNothingInternal", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"createPreview"},
			Abuse: "A tenant, for links that outlive its instance or itself.",
			Stops: "A link has an end, and is asked about instance and tenant at each use.",
			Tests: []string{"TestPreviewsThatAreNone", "TestWhoGetsTheNameOfARemovedTenantGetsNothingElse"},
		},
		{
			Of:    []string{"getPreview", "postPreview", "putPreview", "patchPreview", "deletePreview", "optionsPreview"},
			Abuse: "Anybody, to guess or to forge a link; the page behind it, for cookies and routes of the broker, or of other previews.",
			Stops: "Links are signed. Pages by path are strangers to every origin, those by host have their own, where no route of the API is.",
			Tests: []string{"TestPreviewsThatAreNone", "TestAProgramDoesNotSpeakForTheBrokersOrigin", "TestAPreviewWithAHostOfItsOwn", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"listProviders", "usage"},
			Abuse: "A tenant, to learn of providers and uses that are not its own.",
			Stops: "Each sees its own.",
			Tests: []string{"TestProviders", "TestUsage"},
		},
		{
			Of:    []string{"adminGetStatus", "adminGetConfig", "adminListGenerations", "adminListProviders", "adminGetProvider", "adminListTenants", "adminGetTenant"},
			Abuse: "A tenant, to read what is the operator's; an administrator, for secrets.",
			Stops: "Tokens of tenants open nothing there. No answer has a secret.",
			Tests: []string{"TestWhoIsNoAdministratorSeesNothing", "TestNoSecretComesOutOfTheAdminAPI", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"adminListInstances", "adminGetInstance", "adminKillInstance"},
			Abuse: "A tenant, to see or end the instances of all.",
			Stops: "They are the administrators'. A kill is in the audit log before it happens.",
			Tests: []string{"TestTenantsHaveNoBusinessWithTheInstancesOfAll", "TestWhatAnAdministratorChangesIsInTheAuditLog"},
		},
		{
			Of:    []string{"adminSetActive", "adminSetConfig", "adminTest", "adminReload"},
			Abuse: "Who has got an administrator's token, to run a program as the broker's user, to read files, to send keys elsewhere.",
			Stops: "Settings that name programs, paths and addresses are the file's, and so are functions. What is changed is audited. What remains is in [security.md](security.md#hostile-callers).",
			Tests: []string{"TestAnAdministratorsTokenRunsNoProgramOfItsChoice", "TestNoFunctionIsWrittenIntoTheFile", "TestOnlyTwoAreTriedAtOnce", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"adminAddTenant", "adminChangeTenant", "adminRemoveTenant", "adminAddToken", "adminRevokeToken", "adminRotateToken"},
			Abuse: "A new tenant, by a name that has been one; who reads the state, for tokens that were kept with their keys.",
			Stops: "Nothing of a removed tenant remains. A token is in one answer and nowhere else.",
			Tests: []string{"TestWhoGetsTheNameOfARemovedTenantGetsNothingElse", "TestASecretIsNotKeptForItsKey", "TestTheRequestsOfAttackers"},
		},
	}}
}
