package abuse

// Settings are those of the configuration file, and of the providers that come with the
// broker.
func Settings() Kind {
	return Kind{"Settings", "As `block.setting`; those of providers as `plugin.setting`. The file is the operator's: asked is who else can change a setting, or gains by its value.", []Line{
		{
			Of:    []string{"listen", "metrics.listen"},
			Abuse: "Anybody in the network, where it is no longer loopback: tokens in the clear, metrics without a token.",
			Stops: "Loopback is the default, elsewhere there is TLS. Metrics hold numbers, and nothing that a tenant has sent.",
			Tests: []string{"TestListenAddresses", "TestEverythingWorksOverTLS"},
		},
		{
			Of:    []string{"state", "plugin_dir", "include", "key_file", "audit.dir"},
			Abuse: "Another user of the machine, by files that it can write or read, or pipes and links in their places.",
			Stops: "Owners and modes are checked, and pipes refused. The admin API changes none of them.",
			Tests: []string{"TestAKeyFileIsForItsOwnerAlone", "TestADirectoryThatOthersMayEnterIsRefused", "TestAPipeInTheStateDirectoryIsRefusedAtOnce"},
		},
		{
			Of:    []string{"provider.plugin", "provider.sha256", "provider.env"},
			Abuse: "Who has an administrator's token, to run another program or to load into one.",
			Stops: "The file's alone; the API names a plugin of the directory for a new provider, and nothing else.",
			Tests: []string{"TestWhatNamesProgramsAndPathsIsChangedInTheFileAlone", "TestAnAdministratorsTokenRunsNoProgramOfItsChoice"},
		},
		{
			Of:    []string{"log.level", "log.format"},
			Abuse: "Who reads the log, for secrets; a tenant, to forge a line.",
			Stops: "At no level are there bodies, codes or tokens; values are quoted.",
			Tests: []string{"TestTheLogHasOneLineForARequestAndNoSecrets", "TestRequestIDs"},
		},
		{
			Of:    []string{"tls.cert_file", "tls.key_file", "tls.client_ca_file"},
			Abuse: "Another user of the machine, who reads the key; a client without a certificate.",
			Stops: "A key that others can read is refused; with an authority nobody comes in without a certificate.",
			Tests: []string{"TestCertificatesThatAreOfNoUse", "TestClientsShowCertificatesWhereTheyMust"},
		},
		{
			Of:    []string{"limits.request_body", "limits.output", "limits.artifact_count", "limits.artifact_bytes", "limits.artifact_total"},
			Abuse: "A tenant or its code, for the broker's memory.",
			Stops: "Each has a most; what is above is refused or cut.",
			Tests: []string{"TestBodiesAboveTheLimitAreRefusedCleanly", "TestOutputAboveTheLimitIsCut", "TestTheLimitsOfArtifactsAreTheOperators"},
		},
		{
			Of:    []string{"limits.default_timeout", "limits.max_timeout", "limits.create_timeout", "limits.default_ttl", "limits.max_lifetime", "limits.max_idle", "limits.shutdown_timeout"},
			Abuse: "A tenant, to keep a machine; a provider that hangs, to keep everybody waiting.",
			Stops: "Every wait has an end, whoever is waited for.",
			Tests: []string{"TestNothingOutlivesTheMaximumLifetime", "TestAProviderThatDoesNotAnswerIsSB009", "TestACreationThatTakesTooLongIsSB004", "TestShutdownCancelsWhatTakesTooLong"},
		},
		{
			Of:    []string{"limits.max_wait", "limits.max_waiting"},
			Abuse: "A tenant, to fill the queue for others.",
			Stops: "Each tenant has a queue of its own, with a bound.",
			Tests: []string{"TestTheQueueIsBounded", "TestAFloodOfOneTenantDoesNotDelayAnother"},
		},
		{
			Of:    []string{"limits.disk_timeout"},
			Abuse: "Who else writes to the disk, to have requests refused, or carried out without a line.",
			Stops: "A slow disk is waited for within the request's own time. Without its line nothing happens.",
			Tests: []string{"TestOnASlowDiskARequestWaitsWithinItsOwnDeadline", "TestNothingHappensThatTheLogCannotTakeDown"},
		},
		{
			Of:    []string{"connections.total", "connections.without_token", "connections.without_token_per_address", "connections.per_tenant", "connections.shared_addresses"},
			Abuse: "Anybody, by silent connections; a tenant, by all of its own.",
			Stops: "Bounds below the limit of descriptors; the oldest without a token goes first. Addresses that many share are exempt from the bound for one, and only from that.",
			Tests: []string{"TestConnectionsWithoutATokenAreInNobodysWay", "TestATenantHasSoManyConnections", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"connections.body_bytes", "connections.body_bytes_per_tenant"},
			Abuse: "A tenant, by bodies that lack their ends.",
			Stops: "What was announced counts from the headers on.",
			Tests: []string{"TestBodiesThatDoNotComeAreBounded"},
		},
		{
			Of:    []string{"previews.address"},
			Abuse: "Programs behind links, by cookies of the domain that they share.",
			Stops: "`Domain` is taken out of cookies. A domain that has nothing else is the operator's to choose.",
			Tests: []string{"TestAddressesOfPreviews", "TestAPreviewWithAHostOfItsOwn", "TestHostsThatAreNoPreviews"},
		},
		{
			Of:    []string{"front_door.path", "front_door.listen", "front_door.address"},
			Abuse: "A slip of the operator's, that hides the broker's own routes or health behind those of another system; a client's `Host`, to have addresses lead elsewhere.",
			Stops: "No path of the broker's own is above or below one, nor another front door's. At an address of its own there is nothing but the door, and its connections count with all others. An address that is set does not go by `Host`.",
			Tests: []string{"TestPathsOfFrontDoors", "TestMistakesInFrontDoors", "TestADoorStandsAtTheRootOfAListenerOfItsOwn", "TestAddressesOfFrontDoors", "TestWhatTheDoorCausesSaysSo"},
		},
		{
			Of:    []string{"front_door.tenant"},
			Abuse: "Anybody who reaches the port, to run code as this tenant without a token.",
			Stops: "Nobody is it unless it is set. Where the broker listens to other machines, `check` and the log warn of it.",
			Tests: []string{"TestAFrontDoorWithoutTokensToOtherMachinesIsWarnedOf", "TestFrontDoors"},
		},
		{
			Of:    []string{"front_door.provider", "front_door.images", "front_door.templates", "front_door.template", "front_door.network"},
			Abuse: "A client, for a provider, an image, a template or a network that it was not given.",
			Stops: "The provider is one that the tenant may use; images and templates are those that are listed; `network` is what clients are told, and opens nothing.",
			Tests: []string{"TestMistakesInFrontDoors", "TestFrontDoors"},
		},
		{
			Of:    []string{"front_door.domain", "front_door.public_ports"},
			Abuse: "Anybody with a host, for what is not at it, or to learn which sandboxes there are; programs at these hosts, by each other's cookies or by credentials of clients.",
			Stops: "Below the domain a host is a port of one sandbox and nothing else, and what fields of the header say must agree with it. IDs cannot be guessed. Credentials are taken off what programs see, and `Domain` off their cookies. Without `public_ports` the token of the sandbox is asked for first.",
			Tests: []string{"TestDomainsOfE2B", "TestHostsThatLeadNowhere", "TestPortsThatTakeAToken", "TestAProgramIsReachedByAHostOfItsOwn"},
		},
		{
			Of:    []string{"front_door.wait", "front_door.timeout", "front_door.lease"},
			Abuse: "A client, to keep machines and places in the queue for longer than by the REST API.",
			Stops: "They are at most what the limits say.",
			Tests: []string{"TestMistakesInFrontDoors", "TestFrontDoors"},
		},
		{
			Of:    []string{"provider.cost_per_second", "e2b.cost_per_second", "quota.money_per_day", "quota.money_per_month", "quota.max_memory_mb", "quota.max_cpus", "quota.max_instances", "quota.max_concurrent", "quota.requests_per_second", "quota.executions_per_day", "quota.execution_seconds_per_day"},
			Abuse: "A tenant, for more than its share, by races, crashes and clocks.",
			Stops: "Taken before, settled after, durable; a race grants nothing too much.",
			Tests: []string{"TestAMillionRacingOperationsGrantNothingTooMuch", "TestTheCountsSurviveAKillAtAnyStep", "TestACountFromAClockThatWasWrongEnds"},
		},
		{
			Of:    []string{"providers.active", "providers.fallback", "providers.policy", "providers.on_stop", "providers.start_grace", "providers.spill_after", "providers.unclear_timeout"},
			Abuse: "A tenant, to be served by a provider that it may not use, or twice for once; an administrator's token, to change more than it was asked for.",
			Stops: "Tenants have lists of providers; every fail-over ends in one instance; a change touches what it names.",
			Tests: []string{"TestWhichProviderServes", "TestEveryFailOverEndsInOneInstanceOrARefusalWithNone", "TestAnotherActiveProviderAndBackChangesNothingElse"},
		},
		{
			Of:    []string{"tenant.token_sha256", "admin.token_sha256"},
			Abuse: "Who reads the file, for tokens; who writes a token in the place of its sum.",
			Stops: "Sums cannot be turned back; a token there is a mistake, and is not shown.",
			Tests: []string{"TestATokenInThePlaceOfItsSumIsNotShown", "TestNothingSecretIsShown"},
		},
		{
			Of:    []string{"tenant.providers"},
			Abuse: "A tenant, to reach a provider that is not on its list.",
			Stops: "It is not there for that tenant.",
			Tests: []string{"TestAllows", "TestWhichProviderServes"},
		},
		{
			Of:    []string{"tenant.one_shot", "self_managed.one_shot", "self_managed.one_shot_uses", "self_managed.one_shot_age"},
			Abuse: "Code, for what an earlier execution of its tenant has left in the sandbox, or to leave something for a later one; a tenant, for the sandbox of another.",
			Stops: "A sandbox is handed over within one tenant, after one execution that has ended by itself; every process is gone and every directory is new, or the sandbox is destroyed.",
			Tests: []string{"TestNothingIsLeftBehindInASandboxThatIsHandedOver", "TestASandboxIsHandedOverToItsTenantAlone"},
		},
		{
			Of:    []string{"audit.include_code", "audit.max_mb", "audit.keep_days"},
			Abuse: "Who reads the log, for code and secrets; a tenant, to push lines out by many others.",
			Stops: "Code is written only where it is wanted; lines are bounded; files go for their age alone.",
			Tests: []string{"TestCodeIsWrittenOnlyWhereItIsWanted", "TestNoRequestMakesALineOfMegabytes", "TestOldFilesAreCompressedAndRemovedForTheirAge"},
		},
		{
			Of:    []string{"audit.syslog", "audit.webhook", "audit.webhook_token"},
			Abuse: "Who is on the way to the receiver; an administrator's token, to send the log elsewhere.",
			Stops: "Addresses are checked; the admin API has no route to these settings.",
			Tests: []string{"TestAddressesForTheAuditLog", "TestTheAuditLogIsSentToAWebhookThatIsAddedWhileTheBrokerRuns"},
		},
		{
			Of:    []string{"self_managed.runsc", "self_managed.guest", "self_managed.rootfs", "self_managed.docker_host", "self_managed.docker_runtime", "self_managed.image", "self_managed.wheel_dir", "self_managed.package_index", "self_managed.npm_registry", "kubernetes.kubeconfig", "kubernetes.context", "kubernetes.namespace", "kubernetes.image", "kubernetes.guest_image", "kubernetes.runtime_class", "kubernetes.kernel", "kubernetes.service_account", "kubernetes.network", "kubernetes.reach", "kubernetes.wheel_dir", "kubernetes.package_index", "kubernetes.npm_registry"},
			Abuse: "Who has an administrator's token, for any program as root; another user, who can write one of these.",
			Stops: "`file_only`; owners and modes are those of a program that root runs.",
			Tests: []string{"TestSettingsThatAnAdministratorsTokenCannotChange", "TestAnAdministratorsTokenRunsNoProgramOfItsChoice", "TestTheRequestsOfAttackers"},
		},
		{
			Of:    []string{"self_managed.pool_size", "self_managed.max_sandboxes", "self_managed.queue_timeout", "self_managed.max_age", "self_managed.memory_mb", "self_managed.cpus", "self_managed.workspace_mb", "self_managed.processes", "self_managed.cgroups", "kubernetes.pool_size", "kubernetes.max_sandboxes", "kubernetes.queue_timeout", "kubernetes.max_age", "kubernetes.memory_mb", "kubernetes.cpus", "kubernetes.memory_request_mb", "kubernetes.cpu_request", "kubernetes.workspace_mb", "kubernetes.processes"},
			Abuse: "Code, for the memory, processors, disk and processes of the host.",
			Stops: "Limits in the guest, and control groups as the fence behind it.",
			Tests: []string{"TestTheHostsMemoryLimitIsTheFenceBehindTheGuests", "TestConfigureRefusesSettingsThatDoNotFitTogether", "TestTheCorpus"},
		},
		{
			Of:    []string{"self_managed.runtime", "self_managed.platform", "self_managed.images"},
			Abuse: "Code, where a weaker runtime was chosen; one session, for what a prepared sandbox shares with another.",
			Stops: "A weaker runtime is said to be so; copies differ where they must.",
			Tests: []string{"TestAnotherRuntimeIsSaidToBeWeaker", "TestCopiesDifferWhereSandboxesMust"},
		},
		{
			Of:    []string{"kubernetes.image_pull_policy", "kubernetes.image_pull_secrets", "kubernetes.node_selector", "kubernetes.toleration", "kubernetes.port"},
			Abuse: "Who has an administrator's token, to have code run on other nodes of the cluster.",
			Stops: "It remains, within the namespace's own rules; the change is in the audit log. A port answers nobody without the pod's key.",
			Tests: []string{"TestAGuestSaysNothingToOthers", "TestWhatAnAdministratorChangesIsInTheAuditLog"},
		},
		{
			Of:    []string{"self_managed.packages", "self_managed.package_hosts", "self_managed.package_mb", "kubernetes.packages", "kubernetes.package_hosts", "kubernetes.package_mb"},
			Abuse: "Code, for a way out to the network; an index, by files without end.",
			Stops: "The way out leads to named hosts, during an installation alone, and is bounded.",
			Tests: []string{"TestAnInstallationReachesOnlyWhatTheOperatorNamed", "TestAnIndexThatNeverEndsIsCutOff", "TestPipThatCodeCallsInstallsWhatIsAllowed"},
		},
		{
			Of:    []string{"self_managed.policy", "self_managed.policy_blocked_imports", "self_managed.policy_blocked_calls", "self_managed.policy_allowed_rules", "kubernetes.policy", "kubernetes.policy_blocked_imports", "kubernetes.policy_blocked_calls", "kubernetes.policy_allowed_rules"},
			Abuse: "Code, to hide from the policy; an administrator's token, to turn it off.",
			Stops: "It is no wall, as is said there: the sandbox is. Turning it off is in the audit log.",
			Tests: []string{"TestWhatTheCodePolicyEnforces", "TestFindingsCannotBeTakenBack", "TestWhatAnAdministratorChangesIsInTheAuditLog"},
		},
		{
			Of:    []string{"kubernetes.secret", "e2b.api_key", "daytona.api_key", "aliyun.access_key_id", "aliyun.access_key_secret", "aliyun.security_token"},
			Abuse: "Who reads log, API or errors, for keys.",
			Stops: "They are secret: shown nowhere, sealed in the file where the API writes them.",
			Tests: []string{"TestNoSecretComesOutOfTheAdminAPI", "TestASecretIsWrittenSealedAndReplacedByAnother", "TestOneSlipShowsNoSecret"},
		},
		{
			Of:    []string{"e2b.domain", "e2b.api_url", "e2b.sandbox_url", "daytona.api_url", "aliyun.identity", "aliyun.role_arn", "aliyun.role_name", "aliyun.oidc_provider_arn", "aliyun.oidc_token_file", "aliyun.control_endpoint", "aliyun.data_endpoint", "aliyun.sts_endpoint"},
			Abuse: "Who has an administrator's token, to have keys sent elsewhere, or another role taken.",
			Stops: "`file_only`.",
			Tests: []string{"TestSettingsThatAnAdministratorsTokenCannotChange", "TestSignaturesGoNowhereElse"},
		},
		{
			Of:    []string{"e2b.region", "aliyun.region", "aliyun.account_id", "aliyun.template_name", "e2b.template", "e2b.templates", "e2b.user", "daytona.organization_id", "daytona.target", "daytona.snapshot", "daytona.image", "daytona.user"},
			Abuse: "Who has an administrator's token, to have code run in another region, or in an image that somebody else has made.",
			Stops: "It remains, within the account of the key; the change is in the audit log.",
			Tests: []string{"TestARegionIsNotLeftByMistake", "TestWhatAnAdministratorChangesIsInTheAuditLog"},
		},
		{
			Of:    []string{"kubernetes.create_timeout", "e2b.timeout", "e2b.max_retries", "daytona.max_retries", "daytona.create_timeout", "daytona.auto_stop", "daytona.auto_archive", "daytona.keep_stopped", "daytona.pause_by", "daytona.cpus", "daytona.memory_gb", "daytona.disk_gb", "aliyun.timeout", "aliyun.idle_timeout", "aliyun.cpus", "aliyun.memory_mb", "aliyun.disk_mb"},
			Abuse: "A cloud that lies or hangs, for waiting and money; repeated calls, for two of one.",
			Stops: "Waits are bounded; a creation is repeated by its key only; quotas count what was asked for.",
			Tests: []string{"TestWhateverTheServiceDoesAboutACreation", "TestWhateverTheServiceDoesCodeRunsAtMostOnce", "TestACreationWhoseEffectCannotBeLookedForIsUncertain"},
		},
		{
			Of:    []string{"e2b.allow_internet", "e2b.allowed_hosts", "e2b.public_traffic", "daytona.block_network", "daytona.allowed_networks", "daytona.packages", "aliyun.network", "aliyun.vpc_id", "aliyun.security_group_id", "aliyun.vswitch_ids"},
			Abuse: "Code, for the network of the cloud's account; anybody, for ports of a sandbox that the cloud shows.",
			Stops: "What the cloud enforces, as set; the broker adds nothing to it. A change is in the audit log.",
			Tests: []string{"TestSettingsThatCannotBeAreRefusedByName", "TestWhatAnAdministratorChangesIsInTheAuditLog"},
		},
	}}
}
