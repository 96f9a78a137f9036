# make lab       start an emulated GPU server, tune it, run a GPU VM on it and prove it
# make lab-site  the same, and the rest of a site: RoCE hosts and their switch, a boot server and its diskless nodes
# make check     lint, types and the tests of what you changed: under a minute
# make test      all tests that run in minutes: lint, unit tests, booted plans, Molecule
# make test-all  the same, and the tests that take longer
# make bench-plan  benchmarks of planning, which need no machine
# make lab-down  remove the emulated machines
# make lab-clean  remove the emulated machines, and the images and disks that they are made from

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help
bin := .venv/bin
# All checkouts of a user share images, disks and machines.
export SAILLOFT_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sailloft
cache := $(SAILLOFT_CACHE)
# Resets machines that hang in a boot because of the emulator: no output on their console for 180 s, longer on a loaded host.
watch := roles/lab/files/watch-consoles $(cache)/lab "" 180
lab_playbook := $(watch) ansible-playbook -i inventories/lab
fast_playbook := roles/lab/files/one-process $(lab_playbook)
as_root := $(if $(filter 0,$(shell id -u)),,sudo env PATH="$$PATH" SAILLOFT_CACHE="$$SAILLOFT_CACHE" )
libvirt := $(if $(filter 0,$(shell id -u)),qemu:///system,qemu:///session)
export PATH := $(CURDIR)/$(bin):$(PATH)
# Ansible and Molecule must show their output without delay.
export PYTHONUNBUFFERED := 1
# Containers often forbid Python to keep bytecode. Each process of Ansible would then spend a fifth of its time to compile it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help check environments packages-long types vcsim python39 python39-all ansible-core ansible-core-all thorough lab lab-site lab-down lab-clean packages images test test-all lint unit fleet fleet-long identity identity-long boot boot-long image image-long image-boot boot-loader dcb cabling infiniband infiniband-long scheduler scheduler-long storage rooms sanity sanity-long docs galaxy release molecule molecule-quick molecule-image molecule-slow molecule-long bench bench-plan clean

help:
	@sed -n 's/^# //;/^make/p' Makefile

# Otherwise pip would compile the 20,000 files of all collections, of which few are used.
install := install --quiet --no-compile

packages:
	@roles/lab/files/install-packages bindep.txt

# 650 MB: the PyTorch of the first job.
packages-long: packages
	@roles/lab/files/install-packages bindep-long.txt

.venv/.runtime: requirements.txt roles/lab/files/requirements.txt | packages
	@echo "making the virtual environment in .venv"
	python3 -m venv .venv
	$(bin)/pip $(install) -r roles/lab/files/requirements.txt
	touch $@

.venv/.tests: requirements-dev.txt .venv/.runtime
	$(bin)/pip $(install) -r requirements-dev.txt
	touch $@

# The tools that build the documentation and check the archive need other versions.
.venv/publish/.done: requirements-publish.txt | .venv/.runtime
	python3 -m venv --without-pip .venv/publish
	$(bin)/pip --python .venv/publish $(install) -r requirements-publish.txt
	touch $@

# This is the long part of the first run. It shows its progress, and later targets find the images.
images: packages .venv/.runtime
	ansible-playbook -i inventories/lab -e '{lab_machines: [hv01]}' playbooks/lab_images.yml

lab: packages .venv/.runtime
	@echo "1 of 2: build the images of the GPU server and of its guest (80 s, once), and boot the server (30 s)"
	$(lab_playbook) -e '{lab_machines: [hv01]}' playbooks/lab.yml
	@echo "2 of 2: tune the server, with one reboot; plan, start and configure the GPU VM; prove it (3 minutes; again: 1)"
	$(fast_playbook) --limit gpu_hosts,gpu_guests,localhost playbooks/gpu_hosts.yml playbooks/gpu_vms.yml playbooks/prove.yml
	@echo
	@roles/lab/files/what-next lab

# Machines are started when they are needed. Machines that are not needed are paused, because they take processor time.
lab-site: lab
	@echo "1 of 3: start two RoCE hosts and their switch (3 minutes), and apply one policy to them (3 minutes)"
	virsh --connect $(libvirt) suspend hv01
	$(lab_playbook) -e '{lab_machines: [ro01, ro02, sw01]}' playbooks/lab.yml
	$(lab_playbook) playbooks/fabric_qos.yml
	@echo "2 of 3: start a boot server (1 minute), build the nodes' image and boot two diskless nodes from it (5 minutes)"
	for machine in ro01 ro02 sw01; do virsh --connect $(libvirt) suspend $$machine; done
	$(lab_playbook) -e '{lab_machines: [boot01, bm01, bm02]}' playbooks/lab.yml
	$(lab_playbook) playbooks/boot_servers.yml playbooks/node_images.yml
	$(lab_playbook) playbooks/node_identities.yml playbooks/lab_approve.yml playbooks/node_identities.yml
	@echo "3 of 3: break one node, and reimage both (4 minutes)"
	[ -e $(cache)/lab/identities/opened ] || $(lab_playbook) --limit nodes,localhost playbooks/lab_break.yml
	for machine in hv01 ro01 ro02 sw01; do virsh --connect $(libvirt) resume $$machine; done
	@echo
	@roles/lab/files/what-next site

lab-down: .venv/.runtime
	ansible-playbook -i inventories/lab playbooks/lab_down.yml
	$(as_root)rm -rf $(cache)/store
	rm -rf .cache/facts proofs

lab-clean: lab-down
	$(as_root)rm -rf $(cache)

check: packages .venv/.tests
	tests/changed

# Three phases run at a time. The emulated server, which mostly waits, comes first; then the unit tests, the longest phase of
# one process, which would otherwise end last and alone; the quick checks of the text, the long phases, infiniband, which mostly
# waits, and at the end short ones, so that no processor is idle. Tests with short time limits (fleet) come after the server's
# heaviest part.
test:
	tests/phases molecule-slow,unit,types,lint,image,molecule-image,sanity,infiniband,python39,molecule-quick,fleet,boot,identity,docs,galaxy,ansible-core,scheduler

# The phases that take long, try more cases, or add little to what a part of `test` shows of the same code. A phase NAME-long
# has the tests of NAME that are marked `long`.
test-all: test
	tests/phases sanity-long thorough fleet-long python39-all ansible-core-all image-long image-boot boot-long boot-loader identity-long dcb cabling infiniband-long scheduler-long storage rooms molecule-long bench

environments: .venv/.tests .venv/publish/.done vcsim

lint: packages .venv/.tests
	yamllint .
	ruff check .
	ruff format --check .
	tests/lint

types: packages .venv/.tests
	tests/types

# The simulated vCenter is built once, and again only after a change.
vcsim: packages
	tests/vcsim/build

# The processes of a phase's tests. Phases that run at the same time have one each: every process takes half a minute to collect
# the unit tests.
jobs := 2

unit: packages .venv/.tests vcsim
	pytest -n $(jobs) --dist worksteal

# The library's unit tests, on the oldest Python that targets may have: the first test of each file, or all.
python39: packages .venv/.runtime
	tests/python39/run -n $(jobs)

python39-all: packages .venv/.runtime
	tests/python39/run -n $(jobs) --all-cases

# The archive installed beside the oldest ansible-core, or all of them.
ansible-core: packages .venv/.tests
	tests/ansible_core/run

ansible-core-all: packages .venv/.tests
	tests/ansible_core/run all

# The tests of properties, each with twenty times the examples.
thorough: packages .venv/.tests
	pytest -n $(jobs) --timeout 3600 --hypothesis-profile thorough -m 'hypothesis and not fleet'

# Rollouts, re-imaging and the fabric's policy: whole playbooks on simulated nodes and switches.
fleet: packages .venv/.tests
	pytest -n $(jobs) --dist worksteal --timeout 1800 --durations 10 -m 'fleet and not long'

# Further cases of these, and the other unit tests that are marked `long`.
fleet-long: packages .venv/.tests
	pytest -n $(jobs) --dist worksteal --timeout 1800 -m long

# Nodes' secrets, with software TPMs.
identity: packages .venv/.tests
	pytest --timeout 1800 -n $(jobs) tests/identity

# The same: a kill at any point, and further refusals.
identity-long: packages .venv/.tests
	pytest --timeout 1800 -n $(jobs) -m long tests/identity

# Boots of the plans of two recordings under QEMU, with SeaBIOS and with OVMF.
boot: packages .venv/.tests
	pytest -v --timeout 1800 -n $(jobs) tests/boot

# The plans of all other recordings, with both.
boot-long: packages .venv/.tests
	pytest -v --timeout 1800 -n $(jobs) -m long tests/boot

# Builds of stateless images with the real tools; needs root.
image: packages .venv/.tests
	$(as_root)pytest -v --timeout 1800 tests/image

# The same: two hosts that build all layers, modules of DKMS, and further failures.
image-long: packages .venv/.tests
	$(as_root)pytest -v --timeout 1800 -m long tests/image

# Boots of a node from its firmware on: its image, images that it must refuse, and images of other distributions, which
# are built as root.
image-boot: packages .venv/.tests
	$(as_root)pytest -v --timeout 3600 tests/image_boot

# Kernel arguments on hosts that boot like RHEL, with such a GRUB in an emulated machine.
boot-loader: packages .venv/.tests
	pytest -v --timeout 1800 tests/boot_loader

# A driver's DCB settings, written with the real dcb in an emulated machine.
dcb: packages .venv/.tests
	pytest -v --timeout 1800 tests/dcb

# The neighbours in a small site, as lldpd and ibnetdiscover see them; needs root.
cabling: packages .venv/.tests
	$(as_root)pytest -v --timeout 1800 tests/cabling

# A planned InfiniBand fabric with the real opensm in ibsim: proved, and faults named.
infiniband: packages .venv/.tests
	pytest --timeout 1800 tests/infiniband

# The same with further faults, and with a pod of Blue Vela.
infiniband-long: packages .venv/.tests
	pytest -v --timeout 3600 -m long tests/infiniband

# A planned cluster with the real slurmctld, and a slurmd for each node.
scheduler: packages .venv/.tests
	pytest --timeout 1800 tests/scheduler

# The same: repairs of its nodes, and the first job, which loses a node.
scheduler-long: packages-long .venv/.tests
	pytest -v --timeout 1800 -m long tests/scheduler

# A node's storage in an emulated machine: md, NFS over RDMA, cachefilesd, and boots of new roots; needs root.
storage: packages .venv/.tests
	$(as_root)pytest -v --timeout 3600 tests/storage

# The role scheduler on five hosts, and a virtual machine that leaves a crashed server, each host a room; needs root.
rooms: packages-long .venv/.tests
	$(as_root)pytest -v --timeout 3600 tests/rooms

# These take most of ansible-test's time: checks that ruff, yamllint, python39 and docs make as well, and pylint with Ansible's
# rules.
slow_checks := pep8 pylint yamllint import ansible-doc

sanity: packages .venv/.tests
	tests/sanity/run $(slow_checks:%=--skip-test %)

sanity-long: packages .venv/.tests
	tests/sanity/run $(slow_checks:%=--test %)

# The documentation as a web site; a dead link within it is an error.
docs: export PATH := $(CURDIR)/.venv/publish/bin:$(PATH)
docs: .venv/publish/.done
	docs/site/role_readmes.py --check
	docs/site/build

# The collection as Galaxy and ansible-builder see it.
galaxy: export PATH := $(CURDIR)/.venv/publish/bin:$(PATH)
galaxy: .venv/publish/.done
	tests/galaxy/run

# The release of the last commit, in a clone: .cache/release/sailloft-fleet-X.Y.Z.tar.gz
release: export PATH := $(CURDIR)/.venv/publish/bin:$(PATH)
release: .venv/publish/.done
	@tests/galaxy/release "$(VERSION)"

molecule: molecule-quick molecule-image molecule-slow

# The scenarios that need neither an emulated machine nor root.
molecule-quick: packages .venv/.tests vcsim
	molecule test
	molecule/run vsphere_vm

# Images are built on this machine.
molecule-image: packages .venv/.tests
	molecule/run node_image

# A GPU server in an emulated machine.
molecule-slow: packages .venv/.tests images
	molecule/run gpu_server

molecule-long: packages .venv/.tests images vcsim
	molecule/run gpu_guest gpu_acs vsphere_guest interrupted node_boot node_health roce_path monitoring

bench: packages .venv/.tests images
	benchmarks/run

bench-plan: .venv/.runtime
	benchmarks/run plan

clean: lab-down
	$(as_root)rm -rf .venv .cache
