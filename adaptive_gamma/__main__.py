from adaptive_gamma.cli import main

main()
